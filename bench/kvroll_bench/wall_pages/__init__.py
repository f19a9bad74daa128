"""Metric pages of engines whose wall is known: `CASES`, written as each engine writes them, and `Looked`, what was found on one.

A page follows from a scene: what a batch does in a step, in the model's own bytes and operations. What a wall is called follows from the
scene and the device, never from the rule that is tested. Only the bench of that rule, and its test, may import this.
"""

from kvroll_bench.wall_pages.case import Case, Looked, looked
from kvroll_bench.wall_pages.corpus import CASES

__all__ = ["CASES", "Case", "Looked", "looked"]
