"""Source HTTP: a service of the user's that measures both workers and answers with figures."""

from typing import Any

import aiohttp

from kvroll_operator.api.gate import Gate
from kvroll_operator.gate.finding import Finding, GateSourceError, judge
from kvroll_operator.gate.source import Subject, addresses
from kvroll_operator.gate.web import Web

PAUSE_SECONDS = 5.0


class HttpSource:
    """POSTs the subject, reads `{"metrics": {name: number}, "samples": number}`."""

    pause_seconds = PAUSE_SECONDS

    def __init__(self, gate: Gate, subject: Subject, web: Web) -> None:
        if gate.http is None:
            raise GateSourceError("expected spec.gate.http for source HTTP, found none")
        self._gate = gate
        self._asked = gate.http
        self._subject = subject
        self._web = web

    async def measure(self) -> Finding:
        """One request, as long as it takes within the gate's time.

        Raises:
            GateSourceError: no answer, or none of that shape.
        """
        body: dict[str, Any] = {
            **self._subject.words(),
            "baseline": addresses(self._subject.baseline) if self._subject.baseline else None,
            "candidate": addresses(self._subject.candidate),
            "metrics": [m.model_dump(by_alias=True, exclude_none=True) for m in self._gate.metrics],
        }
        headers = {header.name: header.value for header in self._asked.headers}
        # The gate's own time bounds it: an evaluation may take an hour.
        timeout = aiohttp.ClientTimeout(total=None, connect=30)
        answer = await self._web.json("POST", self._asked.url, json=body, headers=headers, timeout=timeout)
        return judge_answer(self._gate, answer, self._asked.url)

    async def close(self) -> None:
        """Nothing is held."""


def judge_answer(gate: Gate, answer: Any, where: str) -> Finding:
    """The bars against figures that somebody else measured.

    Raises:
        GateSourceError: it is not of the shape.
    """
    metrics = answer.get("metrics") if isinstance(answer, dict) else None
    samples = answer.get("samples", 0) if isinstance(answer, dict) else 0
    if not isinstance(metrics, dict) or isinstance(samples, bool) or not isinstance(samples, int):
        raise GateSourceError(
            f'{where}: expected {{"metrics": {{name: number}}, "samples": count}}, found another shape'
        )
    values = {name: [value] for name, value in metrics.items()}
    return judge(gate.metrics, values, samples=samples, min_samples=gate.min_samples)
