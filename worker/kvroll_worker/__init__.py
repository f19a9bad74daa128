"""The worker: one paged LLM engine on the devices of one Pod, whose every session can be saved, moved and continued.

Rooms: `engine` (scheduler, runner, sampling), `kv` (pages), `models` (loading, importing), `quant` (weights), `session` (moves, fencing),
`serve` (gRPC, health, metrics), `main`. Imports kvroll_core, kvroll_kernels and kvroll.v1; nobody imports the worker.
"""
