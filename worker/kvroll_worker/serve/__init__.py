"""The worker's doors: the engine's thread, the gRPC services, health and metrics.

Lives here: everything that talks to gateways, operators and peers, and the one place that carries the ledger's effects out (`host`).
What may be done to a session is decided in `session`; nothing here computes with tensors. Imported by `main` only.
"""
