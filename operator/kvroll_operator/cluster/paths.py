"""Paths and names of the objects that a pool has in its namespace."""

from dataclasses import dataclass

from kvroll_operator.api import API_VERSION, DRAINS, POOLS
from kvroll_operator.api.names import LABEL


@dataclass(frozen=True)
class Paths:
    """API paths of one namespace."""

    namespace: str

    def pods(self, name: str = "") -> str:
        """Pods."""
        return self._path("/api/v1", "pods", name)

    def services(self, name: str = "") -> str:
        """Services."""
        return self._path("/api/v1", "services", name)

    def events(self, name: str = "") -> str:
        """Events."""
        return self._path("/apis/events.k8s.io/v1", "events", name)

    def revisions(self, name: str = "") -> str:
        """ControllerRevisions."""
        return self._path("/apis/apps/v1", "controllerrevisions", name)

    def disruption_budgets(self, name: str = "") -> str:
        """PodDisruptionBudgets."""
        return self._path("/apis/policy/v1", "poddisruptionbudgets", name)

    def config_maps(self, name: str = "") -> str:
        """ConfigMaps."""
        return self._path("/api/v1", "configmaps", name)

    def jobs(self, name: str = "") -> str:
        """Jobs."""
        return self._path("/apis/batch/v1", "jobs", name)

    def leases(self, name: str = "") -> str:
        """Leases."""
        return self._path("/apis/coordination.k8s.io/v1", "leases", name)

    def pools(self, name: str = "") -> str:
        """InferencePools."""
        return self._path(f"/apis/{API_VERSION}", POOLS, name)

    def drains(self, name: str = "") -> str:
        """WorkerDrains."""
        return self._path(f"/apis/{API_VERSION}", DRAINS, name)

    def _path(self, root: str, plural: str, name: str) -> str:
        base = f"{root}/namespaces/{self.namespace}/{plural}"
        return f"{base}/{name}" if name else base


def pool_selector(pool: str) -> str:
    """Selects what belongs to a pool."""
    return f"{LABEL}pool={pool}"
