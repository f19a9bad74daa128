"""What every source is given, and what it must do."""

from dataclasses import dataclass
from typing import Protocol

from kvroll_operator.gate.finding import Finding
from kvroll_operator.rollout.act.effects import GateProbe

HTTP_PORT = 7071


@dataclass(frozen=True)
class Subject:
    """What is measured: a point of a rollout, a new worker and, where there is one, an old one."""

    pool: str
    namespace: str
    rollout: str
    point: str
    baseline: GateProbe | None
    candidate: GateProbe

    def words(self) -> dict[str, str]:
        """By name, for queries and environments."""
        return {
            "pool": self.pool,
            "namespace": self.namespace,
            "rollout": self.rollout,
            "point": self.point,
            "revision": self.candidate.revision,
        }


class Source(Protocol):
    """One kind of source, about one subject. `pause_seconds` lie between two measurements."""

    @property
    def pause_seconds(self) -> float: ...

    async def measure(self) -> Finding:
        """One measurement.

        Raises:
            GateSourceError: there is none.
        """
        ...

    async def close(self) -> None:
        """Lets go of what it holds outside; also after a measurement was cut."""
        ...


def addresses(probe: GateProbe) -> dict[str, str]:
    """A worker's addresses: gRPC (`kvroll.v1`) and HTTP (`/metrics`, `/report`)."""
    host = probe.address.rpartition(":")[0]
    return {
        "worker": probe.worker_id,
        "revision": probe.revision,
        "instanceId": probe.instance_id,
        "grpc": probe.address,
        "http": f"http://{host}:{HTTP_PORT}",
    }
