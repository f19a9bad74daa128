"""Sends what hypothesis makes up to a fleet, several at a time, beside a stream that nothing may disturb."""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings

from tests.wire.process_fleet import Fleet
from tests.wire.request_fuzz import requests

T = TypeVar("T")
BYSTANDER = {
    "model": "tiny",
    "prompt": [9, 8, 7],
    "max_tokens": 300,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
}
AT_ONCE = 6
_TYPED = {"server_error", "invalid_request_error"}


class Storm:
    """Counts; `wrong` names each answer that none of our clients may get."""

    def __init__(self, fleet: Fleet, loop: asyncio.AbstractEventLoop) -> None:
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.codes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.bystander_differences = 0
        self.bystander_runs = 0
        self._fleet = fleet
        self._loop = loop
        self._in_flight: deque[asyncio.Future[None]] = deque()
        self._stop = False

    def run(self, count: int) -> None:
        """In a thread of its own, for hypothesis waits for each example: sends so many requests."""
        expected = self._await(self._bystander_ids())
        beside = asyncio.run_coroutine_threadsafe(self._stand_by(expected), self._loop)

        @settings(
            max_examples=count, phases=[Phase.generate], deadline=None, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(requests)
        def send(request: tuple[str, dict[str, Any]]) -> None:
            self.sent += 1
            self._in_flight.append(asyncio.wrap_future(self._start(*request), loop=self._loop))
            while len(self._in_flight) >= AT_ONCE:
                self._await(_wait(self._in_flight.popleft()))
            assert not self.ended, "a process ended"

        while self.sent < count:
            send()
        for one in self._in_flight:
            self._await(_wait(one))
        self._stop = True
        beside.result(120)

    @property
    def ended(self) -> int:
        children = [*self._fleet.workers, *([self._fleet.gateway] if self._fleet.gateway else [])]
        return sum(child.ended for child in children)

    def _start(self, path: str, body: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(self._send(path, body), self._loop)

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(180)

    async def _send(self, path: str, body: dict[str, Any]) -> None:
        raw = json.dumps(body)
        try:
            answer = await self._fleet.http.post(path, content=raw, headers={"Content-Type": "application/json"})
        except Exception as error:
            self.wrong.append(f"{type(error).__name__} for {path} {raw[:2000]}")
            return
        self.statuses[answer.status_code] += 1
        if (complaint := self._complaint(answer.status_code, answer.text, body.get("stream") is True)) is not None:
            self.wrong.append(f"{complaint} for {path} {raw[:2000]}")

    def _complaint(self, status: int, text: str, stream: bool) -> str | None:
        """What is wrong with an answer: it ends as docs/endings.md says, or it does not."""
        if status == 200 and stream:
            events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
            if events and events[-1] == "[DONE]":
                return None if not any('"error":' in one[:20] for one in events) else "an error and [DONE]"
            error = json.loads(events[-1]).get("error") if events else None
            return self._typed(error)
        if status == 200:
            choices = json.loads(text)["choices"]
            return None if all(one["finish_reason"] for one in choices) else "no finish_reason"
        if status in (400, 404, 503) or status == 500:
            return self._typed(json.loads(text).get("error"))
        return f"status {status}: {text[:200]}"

    def _typed(self, error: dict[str, Any] | None) -> str | None:
        if error is None or error.get("type") not in _TYPED or not error.get("code"):
            return f"no typed error: {error}"
        self.codes[error["code"]] += 1
        return None if error["code"] not in ("internal_error", "session_lost", "session_poisoned") else str(error)

    async def _bystander_ids(self) -> list[int]:
        answer = await self._fleet.http.post("/v1/completions", json={**BYSTANDER, "stream": True})
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        if not events or events[-1] != "[DONE]":
            return []
        return [one for event in events[:-1] for one in json.loads(event)["choices"][0]["token_ids"]]

    async def _stand_by(self, expected: list[int]) -> None:
        assert len(expected) == BYSTANDER["max_tokens"]
        while not self._stop:
            self.bystander_differences += await self._bystander_ids() != expected
            self.bystander_runs += 1


async def _wait(future: "asyncio.Future[None]") -> None:
    await future
