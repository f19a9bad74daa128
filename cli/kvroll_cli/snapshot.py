"""What one look at the cluster found: a pool and its drains, typed where we read it."""

from dataclasses import dataclass
from typing import Any

from kvroll_cli.cluster import POOL_LABEL, Cluster
from kvroll_cli.errors import CliError
from kvroll_operator.api.status import DrainStatus, PoolStatus


@dataclass(frozen=True)
class Drain:
    """One WorkerDrain: whom it drains, and how far it is."""

    pod: str
    reason: str
    status: DrainStatus


@dataclass(frozen=True)
class Snapshot:
    """One pool as the API server shows it."""

    namespace: str
    name: str
    spec: dict[str, Any]
    status: PoolStatus
    drains: tuple[Drain, ...]

    @classmethod
    def of(cls, pool: dict[str, Any], drains: list[dict[str, Any]]) -> "Snapshot":
        """Reads a pool object and, of all drains, its own."""
        metadata = pool["metadata"]
        own = [d for d in drains if _belongs(d, metadata)]
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            spec=pool["spec"],
            status=PoolStatus.model_validate(pool.get("status", {})),
            drains=tuple(_drain(d) for d in own),
        )

    @property
    def title(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """The same in plain types, in the API's own words."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "spec": self.spec,
            "status": self.status.model_dump(by_alias=True),
            "drains": [
                {"pod": d.pod, "reason": d.reason, "status": d.status.model_dump(by_alias=True)} for d in self.drains
            ],
        }


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


def _drain(found: dict[str, Any]) -> Drain:
    spec = found["spec"]
    return Drain(spec["podName"], spec["reason"], DrainStatus.model_validate(found.get("status", {})))
