"""Reads everything that a decision about one pool may depend on."""

import asyncio
from dataclasses import dataclass

from kvroll_operator.cluster import parse
from kvroll_operator.cluster.client import Api, Json
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths, pool_selector
from kvroll_operator.cluster.workers import Workers
from kvroll_operator.rollout.facts.observed import Pod, Revision, Unreadable, WorkerDrain


@dataclass(frozen=True)
class Objects:
    """What the pool owns, as far as it can be read."""

    pods: tuple[Pod, ...]
    revisions: tuple[Revision, ...]
    drains: tuple[WorkerDrain, ...]
    unreadable: tuple[Unreadable, ...]


async def observe(api: Api, workers: Workers, paths: Paths, owner: Owner) -> Objects:
    """Quorum reads: each list is as new as our own last write, and we are the only writer of what decisions read.

    ControllerRevisions and WorkerDrains are found by their owner alone: they hold decisions and journals, and anybody may change a label. A
    Pod that lost its label is found again by its name, when the slot that it fills is to be filled.

    Raises:
        ApiError: a list could not be read; nothing is known then.
    """
    revision_items, drain_items, pod_items = await asyncio.gather(
        api.list(paths.revisions()), api.list(paths.drains()), api.list(paths.pods(), pool_selector(owner.name))
    )
    revision_items, drain_items, pod_items = (_owned(i, owner.uid) for i in (revision_items, drain_items, pod_items))
    reports = await workers.reports(owner.name, pod_items)
    pods, bad_pods = parse.read_all(
        "Pod", pod_items, lambda item: parse.pod(item, reports.get(item["metadata"]["uid"]), owner.name)
    )
    revisions, bad_revisions = parse.read_all(
        "ControllerRevision", revision_items, lambda item: parse.revision(item, owner.name), stops=True
    )
    drains, bad_drains = parse.read_all("WorkerDrain", drain_items, parse.drain)
    return Objects(pods, revisions, drains, (*bad_revisions, *bad_drains, *bad_pods))


def _owned(items: list[Json], pool_uid: str) -> list[Json]:
    """What this very pool made: neither what an earlier pool of the name left behind, nor what somebody labelled by hand."""
    return [item for item in items if is_owned(item, pool_uid)]


def is_owned(item: Json, uid: str) -> bool:
    """The object has that owner."""
    return any(o.get("uid") == uid for o in item["metadata"].get("ownerReferences") or [])
