"""`kvroll plan`: its arguments (`verb`), gathering what a price needs from a file or a pool (`planned`), and the table (`view`).

The price itself is `kvroll_core.price`.
"""
