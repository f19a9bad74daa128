"""What is: the spec as values, one look at the world, and what follows from both. No decision is taken here.

Imports nothing of the other acts; all of them, the loop and `cluster/`, which makes the look, may import it.
"""
