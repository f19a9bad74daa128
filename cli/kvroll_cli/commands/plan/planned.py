"""`kvroll plan`: the price of a pool's rollout as the operator shows it, or of a file that nobody has applied."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kvroll.v1.worker_pb2 import GetReportResponse
from kvroll_cli.errors import CliError
from kvroll_cli.kube.cluster import Cluster
from kvroll_cli.kube.reports import read_report
from kvroll_cli.kube.snapshot import Snapshot
from kvroll_core.precision.codec import read_spec
from kvroll_core.price import Blocker, PlacedWorker, gather, price
from kvroll_operator.api import API_VERSION, GROUP
from kvroll_operator.api.facts import worker_facts
from kvroll_operator.api.plan import PlanStatus, plan_of
from kvroll_operator.api.pool import Approval, PoolSpec
from kvroll_operator.api.wishes import content_of, settings_of, wish_of

_KIND = "InferencePool"
_UNAPPLIED = "unapplied"
_READERS = 8


@dataclass(frozen=True)
class Planned:
    """A plan and what it is about. `phase` is the rollout's, empty of one that is not applied."""

    namespace: str
    pool: str
    phase: str
    before: str
    after: str
    plan: PlanStatus

    def to_json(self) -> dict[str, Any]:
        """The same in plain types, in the API's own words."""
        return {
            "namespace": self.namespace,
            "pool": self.pool,
            "phase": self.phase,
            "from": self.before,
            "to": self.after,
            "plan": self.plan.model_dump(mode="json", by_alias=True, exclude_none=True),
        }


def of_pool(cluster: Cluster, name: str) -> Planned:
    """The plan in force of a live pool: nothing is computed here.

    Raises:
        CliError: the pool has had no rollout.
    """
    found = Snapshot.of(cluster.pool(name), [])
    rollout = found.status.rollout
    if not rollout.id:
        raise CliError(f"expected a rollout of {name}, found none yet; price a change of it: kvroll plan -f FILE")
    precisions = {
        r["metadata"]["labels"][f"{GROUP}/revision"]: _precision(_content(r)) for r in cluster.revisions(name)
    }
    before, after = precisions.get(rollout.from_, ""), precisions.get(rollout.to, "")
    return Planned(found.namespace, name, rollout.phase, before, after, found.status.plan)


def of_file(file: Path, connect: Callable[[str | None], Cluster]) -> Planned:
    """The price that the pool in the file would have if it were applied now, by what its workers hold now.

    Raises:
        CliError: the file holds no InferencePool or one that no worker can run, the cluster has none of its name, or no worker answers.
    """
    metadata, spec = _read(file)
    name = metadata["name"]
    cluster = connect(metadata.get("namespace"))
    live = cluster.pool(name)
    namespace = live["metadata"]["namespace"]
    revisions = cluster.revisions(name)
    contents = {r["metadata"]["labels"][f"{GROUP}/revision"]: _content(r) for r in revisions}
    newest = _content(revisions[-1]) if revisions else {}
    wanted = content_of(spec, str((newest.get("engine") or {}).get("image", "")))
    target = next((short for short, c in contents.items() if c == json.loads(wanted)), _UNAPPLIED)
    contents[target] = json.loads(wanted)
    pods = [p for p in cluster.pods(name) if "deletionTimestamp" not in p["metadata"]]
    workers = _workers(cluster, name, pods)
    ask = gather(
        workers,
        {short: wish for short, content in contents.items() if (wish := wish_of(content))},
        target,
        order=_order(pods, workers),
        settings=settings_of(spec, contents[target]),
    )
    after = _precision(contents[target])
    if ask is None:  # somebody answered, and all of them run it
        return Planned(namespace, name, "", after, after, PlanStatus())
    leaving = next(w.revision for w in workers if w.revision != target)
    plan = plan_of(price(ask), holds=_holds(spec, live))
    return Planned(namespace, name, "", _precision(contents.get(leaving, {})), after, plan)


def _read(file: Path) -> tuple[dict[str, Any], PoolSpec]:
    try:
        documents = [d for d in yaml.safe_load_all(file.read_text()) if isinstance(d, dict)]
    except OSError as error:
        raise CliError(f"expected a file with an {_KIND}, found {error.strerror}: {file}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CliError(f"expected YAML in {file}, found {error}") from error
    pools = [d for d in documents if d.get("kind") == _KIND and d.get("apiVersion") == API_VERSION]
    if len(pools) != 1:
        raise CliError(f"expected one {_KIND} of {API_VERSION} in {file}, found {len(pools)}")
    metadata = pools[0].get("metadata") or {}
    if not metadata.get("name"):
        raise CliError(f"expected a metadata.name of the {_KIND} in {file}, found none")
    try:
        spec = PoolSpec.model_validate(pools[0].get("spec") or {})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise CliError(f"{file}: spec.{wrong}") from error
    try:
        read_spec(spec.precision.model_dump(by_alias=True)).check()
    except ValueError as error:
        raise CliError(f"{file}: {error}") from error
    return metadata, spec


def _workers(cluster: Cluster, pool: str, pods: list[dict[str, Any]]) -> list[PlacedWorker]:
    """The workers that answer.

    Raises:
        CliError: none does.
    """
    with ThreadPoolExecutor(_READERS) as readers:
        answers = list(readers.map(lambda pod: _report(cluster, pod["metadata"]["name"]), pods))
    found = [_placed(pod, answer) for pod, answer in zip(pods, answers, strict=True) if not isinstance(answer, str)]
    workers = [worker for worker in found if worker is not None]
    if not workers:
        why = next(
            (a for a in answers if isinstance(a, str)), "there are no workers" if not pods else "an older version"
        )
        raise CliError(
            f"expected an answer of a worker of {pool} through the API server (get pods/proxy), found: {why}"
        )
    return workers


def _report(cluster: Cluster, pod: str) -> GetReportResponse | str:
    """The report, or why there is none."""
    try:
        return read_report(cluster, pod)
    except CliError as error:
        return f"{pod}: {error}"


def _placed(pod: dict[str, Any], report: GetReportResponse) -> PlacedWorker | None:
    labels, facts = pod["metadata"]["labels"], worker_facts(report)
    if facts is None:
        return None
    return PlacedWorker(int(labels[f"{GROUP}/group"]), labels[f"{GROUP}/revision"], facts, _start_seconds(pod))


def _start_seconds(pod: dict[str, Any]) -> float | None:
    conditions = pod.get("status", {}).get("conditions") or []
    ready = next((c for c in conditions if c["type"] == "Ready" and c["status"] == "True"), None)
    if ready is None:
        return None
    since, created = (
        datetime.fromisoformat(t) for t in (ready["lastTransitionTime"], pod["metadata"]["creationTimestamp"])
    )
    return (since - created).total_seconds()


def _order(pods: list[dict[str, Any]], workers: list[PlacedWorker]) -> list[int]:
    """The groups as the operator takes them: the emptiest first."""
    held = {int(pod["metadata"]["labels"][f"{GROUP}/group"]): 0 for pod in pods}
    for worker in workers:
        held[worker.group] += sum(c.sessions for c in worker.facts.classes)
    return sorted(held, key=lambda group: (held[group], group))


def _holds(spec: PoolSpec, live: dict[str, Any]) -> dict[Blocker, str]:
    seen = (
        (spec.rollout.approval is Approval.PLAN, Blocker.AWAITING_APPROVAL),
        (spec.rollout.paused, Blocker.PAUSED),
        (live.get("status", {}).get("blocked") == Blocker.NO_SURGE_DEVICE, Blocker.NO_SURGE_DEVICE),
    )
    return {word: "" for holds, word in seen if holds}


def _content(revision: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(revision["data"]["content"])
    return content


def _precision(content: dict[str, Any]) -> str:
    precision = content.get("precision") or {}
    return f"{precision.get('weights', '?')}/{precision.get('kvCache', '?')}"
