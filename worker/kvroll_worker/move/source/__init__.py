"""The source's end of a move: Offer, Push rounds while the session decodes on, freeze, last delta, Prepare, TransferOwnership.

Lives here: the pure machine (`end`, and one `attempt` as the ledger knows it), the pure `pace` of rounds, and the coroutines that carry a
move out (`transfer`, `pushing`). Nothing here decides who owns a session: the ledger does, after the gateway's answer. Imported by
`move.drain`, `serve`, and of `own` (`attempt` alone).
"""
