"""One running worker instance: the engine's thread, the gateways' streams, and the one place that carries the ledger's effects out.

Lives here: the host and what it runs. No gRPC service. Imported by `serve` and `main`.
"""
