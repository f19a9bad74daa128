"""The operator: makes a pool's workers what its spec says, and keeps their sessions while it does.

`api/` the custom resources, `rollout/` the pure state machine and its executor, `cluster/` what speaks to the API server and the workers,
`main` the process. Imports `kvroll_core` and `kvroll.v1` only; the CLI may import `api/`.
"""
