"""Which sessions this worker owns, at which epoch and for which gateway: the ownership ledger and what it is made of.

Lives here: `ledger` (the machine), the `fence` of epochs, one `held` session with its `frames` and `record`, and the `effects` that the
ledger asks for. Pure: no gRPC, event loop, engine, tensors or clock; time is a value. It knows the two ends of a move only as the pure
machines `move.source.attempt` and `move.target.reservations`, and their `move.messages`. Imported by `move` and `serve`.
"""
