"""One forward pass: packed weights, the rows of a step, logits, and the token that is chosen from a row.

Lives here: everything that calls kernels, and the functions of one row of logits. No decision about who runs; no text.
Imported by `engine`; `evaluate` and `port` know its rows of logits.
"""
