"""The oracle: every kernel in plain torch, row by row, with sums in fp64 so that only the tested kernel's rounding shows.

Slow on purpose. No blocking, threads or packing live here; only `dispatch` imports this package.
"""
