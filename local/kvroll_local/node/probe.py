"""Probes as a kubelet reads and counts them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS = ("startupProbe", "readinessProbe", "livenessProbe")
WAYS = ("httpGet", "tcpSocket")


class ProbeError(ValueError):
    """A probe that this agent cannot do."""


@dataclass(frozen=True)
class PodProbe:
    """What is asked how often; `url` empty: a TCP connection is enough."""

    host: str
    port: int
    url: str
    headers: tuple[tuple[str, str], ...]
    initial_delay_seconds: float
    period_seconds: float
    timeout_seconds: float
    success_threshold: int
    failure_threshold: int


def parse(kind: str, container: Mapping[str, Any], pod_ip: str) -> PodProbe | None:
    """A container's probe of that kind, with a kubelet's defaults; None without one.

    Raises:
        ProbeError: exec, grpc, or a port without a number.
    """
    spec = container.get(kind)
    if not spec:
        return None
    where = f"{container.get('name')}.{kind}"
    ways = [way for way in ("httpGet", "tcpSocket", "exec", "grpc") if way in spec]
    if len(ways) != 1 or ways[0] not in WAYS:
        raise ProbeError(f"{where}: expected {' or '.join(WAYS)}, found {', '.join(ways) or 'none'}")
    action = spec[ways[0]]
    host, port = action.get("host") or pod_ip, _port(action.get("port"), container, where)
    path = action.get("path") or "/"
    scheme = str(action.get("scheme") or "HTTP").lower()
    url = f"{scheme}://{host}:{port}{path if path.startswith('/') else f'/{path}'}" if ways[0] == "httpGet" else ""
    return PodProbe(
        host=host,
        port=port,
        url=url,
        headers=tuple((h["name"], h["value"]) for h in action.get("httpHeaders", [])),
        initial_delay_seconds=float(spec.get("initialDelaySeconds", 0)),
        period_seconds=float(spec.get("periodSeconds", 10)),
        timeout_seconds=float(spec.get("timeoutSeconds", 1)),
        success_threshold=int(spec.get("successThreshold", 1)),
        failure_threshold=int(spec.get("failureThreshold", 3)),
    )


def _port(named: Any, container: Mapping[str, Any], where: str) -> int:
    if isinstance(named, int) or str(named).isdigit():
        return int(named)
    for port in container.get("ports", []):
        if port.get("name") == named:
            return int(port["containerPort"])
    raise ProbeError(f"{where}: expected a port's number or name, found {named!r}")


@dataclass(frozen=True)
class Findings:
    """`healthy` is what counts; it turns after enough answers of the other kind in a row."""

    healthy: bool
    num_same: int = 0
    last: bool | None = None

    def after(self, answer: bool, probe: PodProbe) -> "Findings":
        """The findings with one more answer."""
        num_same = self.num_same + 1 if answer == self.last else 1
        needed = probe.success_threshold if answer else probe.failure_threshold
        return Findings(answer if num_same >= needed else self.healthy, num_same, answer)
