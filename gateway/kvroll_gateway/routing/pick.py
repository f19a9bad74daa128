"""Which worker gets a session: the least loaded of those that may take one."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kvroll_gateway.sessions.ports import NoWorker


@dataclass(frozen=True)
class Candidate:
    """A worker instance with a live stream.

    `admitted`: the cluster lets it take sessions (its Pod's label); `admitting`: the worker itself says that it does.
    """

    instance_id: str
    model: str
    admitted: bool
    admitting: bool


def pick(
    candidates: Iterable[Candidate],
    model: str,
    exclude: Collection[str],
    load: Mapping[str, int],
    known_models: Collection[str],
) -> str | NoWorker:
    """The instance with the fewest sessions among admitted and admitting workers of `model` outside `exclude`."""
    if not known_models:
        return NoWorker(known_model=True, message="no worker has answered yet; try again later")
    if model not in known_models:
        names = ", ".join(sorted(known_models))
        return NoWorker(known_model=False, message=f"expected one of the served models ({names}), found {model!r}")
    fit = [
        one
        for one in candidates
        if one.model == model and one.admitted and one.admitting and one.instance_id not in exclude
    ]
    if not fit:
        return NoWorker(
            known_model=True, message=f"no worker of {model!r} takes new sessions at the moment; try again later"
        )
    return min(fit, key=lambda one: (load.get(one.instance_id, 0), one.instance_id)).instance_id
