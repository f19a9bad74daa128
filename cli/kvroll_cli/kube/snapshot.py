"""What one look at the cluster found: a pool and its drains, typed where we read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroll_cli.errors import CliError
from kvroll_cli.kube.cluster import GROUP_LABEL, POOL_LABEL, ROLLOUT_LABEL, Cluster
from kvroll_cli.kube.judgement import GateNow, WallNow
from kvroll_operator.api.status import DrainStatus, PoolStatus


@dataclass(frozen=True)
class DrainNow:
    """One WorkerDrain: whom it drains, for which rollout (empty: for another reason), and how far it is. `group` is None
    where it does not say.
    """

    pod: str
    reason: str
    group: int | None
    rollout: str
    status: DrainStatus


@dataclass(frozen=True)
class Snapshot:
    """One pool as the API server shows it; `reported` is its status as it came, with what a newer operator may say."""

    namespace: str
    name: str
    spec: dict[str, Any]
    status: PoolStatus
    reported: Mapping[str, Any]
    drains: tuple[DrainNow, ...]

    @classmethod
    def of(cls, pool: dict[str, Any], drains: list[dict[str, Any]]) -> "Snapshot":
        """Reads a pool object and, of all drains, its own."""
        metadata = pool["metadata"]
        own = [d for d in drains if _belongs(d, metadata)]
        status = pool.get("status", {})
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            spec=pool["spec"],
            status=PoolStatus.model_validate(status),
            reported=status,
            drains=tuple(_drain(d) for d in own),
        )

    @property
    def title(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"

    @property
    def gate(self) -> GateNow:
        """The newest verdict of the gate."""
        return GateNow.of(self.reported)

    @property
    def wall(self) -> WallNow:
        """What the pool is short of."""
        return WallNow.of(self.reported)


def take(cluster: Cluster, name: str | None) -> tuple[Snapshot, ...]:
    """Every pool, or the one of that name, with its drains.

    Raises:
        CliError: no pool of that name.
    """
    pools = [p for p in cluster.pools() if name in (None, p["metadata"]["name"])]
    if name is not None and not pools:
        where = f"namespace {cluster.namespace}" if cluster.namespace else "any namespace"
        raise CliError(f"expected an InferencePool {name}, found none in {where}")
    drains = cluster.drains() if pools else []
    return tuple(Snapshot.of(pool, drains) for pool in pools)


def _belongs(drain: dict[str, Any], pool: dict[str, Any]) -> bool:
    metadata = drain["metadata"]
    if metadata["namespace"] != pool["namespace"]:
        return False
    if any(owner.get("uid") == pool.get("uid") for owner in metadata.get("ownerReferences", [])):
        return True
    return bool(metadata.get("labels", {}).get(POOL_LABEL) == pool["name"])


def _drain(found: dict[str, Any]) -> DrainNow:
    spec, labels = found["spec"], found["metadata"].get("labels", {})
    group = labels.get(GROUP_LABEL)
    return DrainNow(
        pod=spec["podName"],
        reason=spec["reason"],
        group=int(group) if group is not None else None,
        rollout=labels.get(ROLLOUT_LABEL, ""),
        status=DrainStatus.model_validate(found.get("status", {})),
    )
