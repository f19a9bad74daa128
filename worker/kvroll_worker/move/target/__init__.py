"""The target's end of a move: a reservation, pages and token ids that land in it, a verified copy that only a gateway can start.

Lives here: the pure table of reservations under leases (`reservations`), what has arrived for one (`arrival`), and how Push rounds reach
the engine (`receiver`). No gRPC door. Imported by `own` (`reservations` alone) and `serve`.
"""
