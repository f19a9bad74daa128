"""The rollout of a pool: `transition(desired, observed) -> (status, effects)` and what it is made of.

Pure: no kopf, event loop, gRPC, Kubernetes client, clock or randomness may be imported here. Time is a value in `Observed`;
status is rendered, never read. `cluster/` observes and executes; `pool_loop` and the tests call it.
"""
