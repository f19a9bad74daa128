"""The KV cache: which pages are whose (`pool`, plain ints, no torch) and the bytes behind them (`storage`).

Lives here: allocation, sharing, integrity, page bytes in and out. No sessions, no scheduling, no wire.
Imported by `engine`.
"""
