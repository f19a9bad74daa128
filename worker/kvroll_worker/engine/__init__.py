"""The engine: sessions in, tokens out, one step at a time; every state of a session can be read out and put back.

Lives here: the `Engine` that joins the parts, what it is asked to be (`config`), a `session` while it is inside, whose fault an
exception is (`blame`); `schedule/` chooses rows and pages, `step/` computes logits and tokens, `text/` makes events of them.
No gRPC, no HTTP, no event loop, no clock in `schedule/`. Reached through `kvroll_worker.port` by `move` and `serve`, always on the
engine's own thread; `main` and `evaluate` make engines.
"""
