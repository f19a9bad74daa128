"""The worker's doors: the gRPC services, health and metrics.

Lives here: what talks to gateways, operators and peers; `instance/` is the running worker behind the doors.
What may be done to a session is decided in `own`, how it moves in `move`; nothing here computes with tensors. Imported by `main` only.
"""
