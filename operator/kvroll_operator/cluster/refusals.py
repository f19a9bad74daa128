"""What the API server refused lately, so that it can be shown; and Pod names that objects of others have.

Shown, and a reason to wait; forgetting it costs one more refused request, so it need not outlive the process.
"""

from kvroll_operator.cluster.client import ApiError, ApiProblem
from kvroll_operator.rollout.facts.observed import Refusal

KEPT_SECONDS = 120.0


class Refusals:
    """Of one pool. Each is forgotten once it has not been met again for a while."""

    def __init__(self) -> None:
        self._at: dict[str, tuple[Refusal, float]] = {}
        self._taken: dict[str, float] = {}

    def add(self, refusal: Refusal, now: float) -> bool:
        """Remembers it; says whether it is new."""
        known = self._at.get(refusal.what)
        self._at[refusal.what] = (refusal, now)
        return known is None or known[0] != refusal

    def drop(self, content: str) -> None:
        """An object of that content was made."""
        self._at = {what: (r, at) for what, (r, at) in self._at.items() if r.content != content}

    def take(self, name: str, now: float) -> None:
        """An object of somebody else has that Pod name."""
        self._taken[name] = now

    def current(self, now: float) -> tuple[Refusal, ...]:
        """Those that still count, by what was refused."""
        self._at = {what: (r, at) for what, (r, at) in self._at.items() if now - at < KEPT_SECONDS}
        return tuple(r for _, (r, _) in sorted(self._at.items()))

    def taken(self, now: float) -> frozenset[str]:
        """Names that are not free."""
        self._taken = {name: at for name, at in self._taken.items() if now - at < KEPT_SECONDS}
        return frozenset(self._taken)


def refusal_of(error: ApiError, what: str, content: str = "") -> Refusal:
    """Why the API server refused an object, in one word and its own."""
    text = error.message.lower()
    if "exceeded quota" in text or ("must specify" in text and "quota" in text):
        reason = "QuotaExceeded"
    elif "podsecurity" in text.replace(" ", ""):
        reason = "PodSecurity"
    elif error.problem is ApiProblem.INVALID:
        reason = "Invalid"
    else:
        reason = str(error.problem)
    return Refusal(what, reason, error.message, content)
