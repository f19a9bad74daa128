"""One dispatch over three implementations of every kernel: `reference` (torch, the oracle), `native` (C++), `triton`.

Only `kvroll_worker` may import this package. It imports with neither the native module nor triton present; an implementation that is absent
is refused by name (`dispatch.load`). No scheduling, paging or model code lives here.
"""
