"""Both ends of a move of a session from one worker to another, and the drain that asks for moves.

Lives here: `source/` (the worker that a session leaves), `target/` (the one that it comes to), `drain`, and what both ends share: the
`messages` and their `codec`, the `manifest` that a moved session is checked against, channels to `peers`, the host that a move needs
(`port`). What is decided is in `source.end` and `target.end`, pure machines; the coroutines beside them only carry it out.
No gRPC doors and no metrics: those are `serve`'s. May import `own`, `wire`, `port`, `request`. Imported by `serve`.
"""
