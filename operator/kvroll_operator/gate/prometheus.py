"""Source Prometheus: instant queries over the HTTP API (prometheus.io, "HTTP API", /api/v1/query), each judged by its bar."""

import asyncio
import math
from typing import Any

import aiohttp

from kvroll_operator.api.gate import Gate
from kvroll_operator.gate.finding import Finding, GateSourceError, judge
from kvroll_operator.gate.source import Subject
from kvroll_operator.gate.web import Web

QUERY_SECONDS = 30.0


class PrometheusSource:
    """`$(pool)`, `$(namespace)`, `$(revision)`, `$(rollout)` and `$(point)` in a query are replaced by the subject's."""

    def __init__(self, gate: Gate, subject: Subject, web: Web) -> None:
        if gate.prometheus is None:
            raise GateSourceError("expected spec.gate.prometheus for source Prometheus, found none")
        self._gate = gate
        self._asked = gate.prometheus
        self._subject = subject
        self._web = web
        self._is_first = True

    async def measure(self) -> Finding:
        """All queries once; the first time after the new workers have served for the initial delay.

        Raises:
            GateSourceError: a query was not answered.
        """
        if self._is_first:
            await asyncio.sleep(self._asked.initial_delay_seconds)
            self._is_first = False
        values = {metric.name: await self._values(metric.query or "") for metric in self._gate.metrics}
        # `minSamples` counts measurements here, and the runner counts them.
        return judge(self._gate.metrics, values, samples=1, min_samples=None)

    async def close(self) -> None:
        """Nothing is held."""

    async def _values(self, query: str) -> list[float]:
        for word, value in self._subject.words().items():
            query = query.replace(f"$({word})", value)
        url = f"{self._asked.address.rstrip('/')}/api/v1/query"
        timeout = aiohttp.ClientTimeout(total=QUERY_SECONDS)
        answer = await self._web.json("POST", url, data={"query": query}, timeout=timeout)
        return _samples(answer, query)

    @property
    def pause_seconds(self) -> float:
        """Between two measurements."""
        return float(self._asked.interval_seconds)


def _samples(answer: Any, query: str) -> list[float]:
    """Values of a scalar or of each element of a vector; an empty vector has none."""
    try:
        data = answer["data"]
        if data["resultType"] == "scalar":
            return [_number(data["result"][1])]
        if data["resultType"] == "vector":
            return [_number(entry["value"][1]) for entry in data["result"]]
        found = data["resultType"]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise GateSourceError(f"{query}: expected an answer of Prometheus' query API, found another shape") from error
    raise GateSourceError(f"{query}: expected a scalar or a vector, found a {found}; write an instant query")


def _number(text: Any) -> float:
    value = float(text)
    return value if math.isfinite(value) else math.nan
