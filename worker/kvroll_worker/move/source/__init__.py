"""The source's end of a move: Offer, Push rounds while the session decodes on, freeze, last delta, Prepare, TransferOwnership.

Lives here: the pure machine of one attempt (`attempt`), the pure pace of rounds (`pace`), and the coroutines that carry a move out.
Nothing here decides who owns a session: the ledger does, after the gateway's answer. Imported by `move.drain`, `own` (`attempt` alone)
and `serve`.
"""
