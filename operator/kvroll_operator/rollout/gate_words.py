"""The words of a gate that the rollout compares."""

from enum import StrEnum

CANARY = "Canary"
FINAL = "Final"
BASELINE = "Baseline"
"""No point of the spec: an old worker's answers, measured to be kept."""


class GateVerdict(StrEnum):
    """What a gate says."""

    PASS = "Pass"
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"
    NOT_RUN = "NotRun"


def point_of(group: int) -> str:
    """The point of one group, where every group is judged."""
    return f"G{group}"
