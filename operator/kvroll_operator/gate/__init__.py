"""The quality gate's hands: one measurement a pool at a time, by the source that the spec names.

`rollout/` decides what is measured and what follows; here it is done, asynchronously, and ends in a value that the next pass observes.
Nothing here decides about a rollout, and nothing is kept that a restart may not lose. `pool_loop` and `cluster/execute` call it.
"""
