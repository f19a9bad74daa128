"""When a container that ended is started again: a kubelet's rule, with a shorter first wait."""

from dataclasses import dataclass

FIRST_SECONDS = 1.0
"""A kubelet waits 10 s; here a person waits at the terminal."""
MAX_SECONDS = 300.0
STABLE_SECONDS = 600.0
"""A container that ran this long has earned a fresh start, as with a kubelet."""


@dataclass(frozen=True)
class RestartBackoff:
    """`next_seconds` is how long the next restart waits."""

    next_seconds: float = 0.0

    def ended(self, ran_seconds: float) -> "tuple[float, RestartBackoff]":
        """(seconds to wait now, what follows) after a run of that length. The first restart does not wait."""
        wait = 0.0 if ran_seconds >= STABLE_SECONDS else self.next_seconds
        return wait, RestartBackoff(min(max(FIRST_SECONDS, 2 * wait), MAX_SECONDS))


def restarts(policy: str, exit_code: int) -> bool:
    """Whether a container that ended with that code is started again.

    Raises:
        ValueError: no restart policy of a Pod.
    """
    if policy not in ("Always", "OnFailure", "Never"):
        raise ValueError(f"restartPolicy: expected Always, OnFailure or Never, found {policy!r}")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
