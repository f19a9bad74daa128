"""Sessions as things that can be owned, moved and continued: fencing, the two ends of a move, kept frames, drains.

Lives here: the pure machines (`fence`, `frames`, `source`, `target`, `held`, `ledger`: no event loop, gRPC, torch or clock; time is a
value) and, above them, the coroutines that carry a move out (`transfer`, `drain`). May import `engine.request`, kvroll_core and
kvroll.v1. Imported by `serve`.
"""
