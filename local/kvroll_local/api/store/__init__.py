"""Objects and their history: memory for reading, SQLite for a crash. Knows no HTTP and no meaning of a kind.

May import the standard library alone; everything else in `kvroll_local.api` may import it.
"""
