"""Points of a gate, as evidence is filed under them."""

CANARY = "Canary"
FINAL = "Final"
BASELINE = "Baseline"
"""No point of the spec: an old worker's answers, measured to be kept."""


def point_of(group: int) -> str:
    """The point of one group, where every group is judged."""
    return f"G{group}"
