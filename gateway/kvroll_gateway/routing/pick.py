"""Which worker gets a session: the least loaded of those that may take one, and apart from the others where the session is a suspect."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kvroll_gateway.sessions.ports import InstanceLoad, NoWorker, Seeker


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
    seeker: Seeker,
    load: InstanceLoad,
    known_models: Collection[str],
    num_awaited: int = 0,
) -> str | NoWorker:
    """The instance with the fewest sessions among admitted and admitting workers of the model outside `seeker.exclude`.

    A suspect goes where it can harm the fewest that are none, and waits rather than take the last healthy worker while others
    (`num_awaited` of them) are expected back; what is no suspect keeps away from those.
    """
    model = seeker.model
    if not known_models:
        return NoWorker(known_model=True, message="no worker has answered yet; try again later")
    if model not in known_models:
        names = ", ".join(sorted(known_models))
        return NoWorker(known_model=False, message=f"expected one of the served models ({names}), found {model!r}")
    healthy = [one for one in candidates if one.model == model and one.admitted and one.admitting]
    fit = [one.instance_id for one in healthy if one.instance_id not in seeker.exclude]
    if not fit:
        return NoWorker(
            known_model=True, message=f"no worker of {model!r} takes new sessions at the moment; try again later"
        )
    if not seeker.suspect:
        return min(fit, key=lambda one: (load.suspects.get(one, 0) > 0, load.sessions.get(one, 0), one))
    if len(healthy) == 1 and num_awaited > 0 and not seeker.urgent:
        why = f"only one worker of {model!r} is left, and a session that may have ended another one is kept from it"
        return NoWorker(known_model=True, message=f"{why} for now; {num_awaited} may come back", quarantined=True)
    return min(fit, key=lambda one: (load.innocents(one), load.sessions.get(one, 0), one))
