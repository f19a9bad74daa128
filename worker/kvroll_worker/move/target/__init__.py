"""The target's end of a move: a reservation, pages and token ids that land in it, a verified copy that only a gateway can start.

Lives here: the pure machine (`end`, over the table of `reservations` under leases), what its steps do on the engine's thread (`landing`,
`pages`), and the coroutine that carries them out (`receiver`). No gRPC door. Imported by `serve`, and of `own` (`reservations` alone).
"""
