"""The engine: sessions in, tokens out, one step at a time; every state of a session can be read out and put back.

Lives here: requests, scheduler, runner, sampler and the `Engine` that joins them.
No gRPC, no HTTP, no event loop, no clock in the scheduler.
Called by `session` and `serve`, always from the engine's own thread.
"""
