"""The counters that NVIDIA's DCGM exporter has of a worker's devices, as a Prometheus keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from kvroll_cli.errors import CliError
from kvroll_core.wall import MEMORY_ACTIVE, TENSOR_ACTIVE, Labels

_TIMEOUT_SECONDS = 10.0
_LEAST_SECONDS = 60.0
"""Of history that is asked for: a Prometheus scrapes every 15 to 60 s."""
_NAMES = (MEMORY_ACTIVE[-1], TENSOR_ACTIVE[-1])

Series = Mapping[str, Mapping[Labels, float]]


@dataclass(frozen=True)
class Dcgm:
    """A Prometheus."""

    url: str

    def read(self, seconds: float, selector: str = "") -> Series:
        """The mean of each counter over the last seconds, by device; `selector` is the inside of PromQL's braces, empty for all.

        Raises:
            CliError: it does not answer, or has no such series.
        """
        span = round(max(seconds, _LEAST_SECONDS))
        with httpx.Client(timeout=_TIMEOUT_SECONDS) as client:
            found = {name: self._ask(client, f"avg_over_time({name}{{{selector}}}[{span}s])") for name in _NAMES}
        if not found[_NAMES[0]]:
            raise CliError(
                f"expected {_NAMES[0]}{{{selector}}} at {self.url}, found no such series in the last {span} s:"
                " is the DCGM exporter's profiling module on, and the selector right?"
            )
        return found

    def _ask(self, client: httpx.Client, query: str) -> dict[Labels, float]:
        address = f"{self.url.rstrip('/')}/api/v1/query"
        try:
            answer = client.get(address, params={"query": query})
            told: Any = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise CliError(f"expected a Prometheus at {address}, found: {error}") from error
        if not isinstance(told, dict) or told.get("status") != "success":
            said = told.get("error", "no answer") if isinstance(told, dict) else "no answer"
            raise CliError(f"expected {address} to answer {query}, it said: {said}")
        return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in told["data"]["result"]}


def of_pod(series: Series, pod: str) -> Series:
    """What a Pod's devices say. A Prometheus that keeps its own labels renames the exporter's to `exported_…`."""
    return {name: {k: v for k, v in found.items() if _pod(dict(k)) == pod} for name, found in series.items()}


def told_only(series: Series) -> Series:
    """Without the counters of no device: who has none stays as it was."""
    return {name: found for name, found in series.items() if found}


def _pod(labels: Mapping[str, str]) -> str | None:
    return labels.get("exported_pod") or labels.get("pod")
