"""Running engines as the command line reads them: their metrics pages, the device counters of an exporter, the engines of a pool.

Only reads. `wall`, `advise` and benches import it; nothing here judges.
"""
