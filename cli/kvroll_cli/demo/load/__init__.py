"""The client's side of the demo: one streaming session and its transcript, how long sessions are, and a wave of them.

Talks to a gateway by its public HTTP API only. The demo, benches and tests import it; it knows no back end and no pool.
"""
