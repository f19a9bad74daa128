"""The serving floor: the one function that every voluntary close goes through, on every path (invariant G/I1)."""

from kvroll_core.plan import Step
from kvroll_operator.rollout.facts.observed import Pod
from kvroll_operator.rollout.facts.view import View


class ServingFloor:
    """A running count of who serves in this pass: what was observed, less what the pass itself has closed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._serving = {p.uid: p for p in view.serving()}

    def close(self, pod: Pod) -> bool:
        """Whether `pod` may be closed now; if so, it counts as closed from here on."""
        if pod.uid not in self._serving:
            return True
        desired = self._view.desired
        turn = self._view.turns.get(pod.group)
        if turn is not None and turn.step is Step.DRAIN_FIRST:
            left = sum(1 for p in self._serving.values() if p.group != pod.group)
            allowed_groups = max(1, desired.max_unavailable)
        else:
            left = len(self._serving) - 1
            allowed_groups = desired.max_unavailable
        if left < desired.num_workers - allowed_groups * desired.group_size:
            return False
        del self._serving[pod.uid]
        return True
