"""What is done about it: the effects of a pass, and the acts that choose them: keep, leave, measure, bury.

Imports `facts/` alone: an act decides nothing that must be remembered. `cluster/execute.py` performs the effects.
"""
