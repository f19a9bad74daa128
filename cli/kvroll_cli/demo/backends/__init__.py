"""Where the demo and the e2e tests run: on this machine alone, or on a Kubernetes; with the objects of its API server.

Imports nothing of the load. Who imports it chooses the back end.
"""
