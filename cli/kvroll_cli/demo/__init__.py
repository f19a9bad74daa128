"""The main job as a stranger sees it: sessions stream, the precision changes under them, and the clients count what they
received.

Lives here: the streaming client and its transcript, the load, one roll under it, and the report. Talks to a gateway by
its public HTTP API only. May import `kvroll_cli.errors` and `kvroll_cli.output`; `bench/` and `tests/` import this
package, the other verbs do not.
"""
