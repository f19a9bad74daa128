"""One precision change under load: the pool is patched while a wave streams, and the roll is watched to its end."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvroll_cli.demo.backends.objects import BackendError, BackendObjects, Object, conditions, is_complete
from kvroll_cli.demo.load.transcript import Transcript
from kvroll_cli.demo.load.wave import Wave
from kvroll_cli.demo.report import Window, change_report


@dataclass(frozen=True)
class DemoChange:
    """What to set: dtype words, groups that may surge at once, ways on, moves of a worker at a time; None leaves one as it is."""

    weights: str | None = None
    kv_cache: str | None = None
    max_surge: int | None = None
    allow: tuple[str, ...] | None = None
    per_worker: int | None = None

    def patch(self) -> dict[str, Any]:
        """The merge patch of the pool."""
        words = {"weights": self.weights, "kvCache": self.kv_cache}
        spec: dict[str, Any] = {"precision": {k: v for k, v in words.items() if v is not None}}
        if self.max_surge is not None:
            spec["rollout"] = {"maxSurge": self.max_surge}
        sessions = {"allow": self.allow and list(self.allow), "perWorker": self.per_worker}
        if wanted := {k: v for k, v in sessions.items() if v is not None}:
            spec["sessions"] = wanted
        return {"spec": spec}

    def __str__(self) -> str:
        return json.dumps(self.patch())


class Roll:
    """Runs one change on a pool and keeps what the report needs. The wave goes on: it may stream through several rolls."""

    def __init__(self, objects: BackendObjects, pool: str, wave: Wave, change: DemoChange) -> None:
        self.change = change
        self.started_seconds: float | None = None
        self._objects, self._pool, self._wave = objects, pool, wave
        self._source: dict[str, str] = {}
        self._target: dict[str, str] = {}
        self._roll_seconds = 0.0
        self._sessions: dict[str, int] = {}
        self._kv_bytes_per_token = (0.0, 0.0)

    async def run(self, timeout_seconds: float = 300, looked: Callable[[Object], None] = lambda _: None) -> None:
        """Patches once all sessions of the wave stream, and returns when the roll is complete. `looked` gets every look at the pool.

        Raises:
            BackendError: not all stream, or the roll did not complete in time; the message holds why.
        """
        await all_stream(self._wave, timeout_seconds)
        before = await self._get()
        self._source = before["spec"]["precision"]
        self.started_seconds = time.monotonic()
        await self._objects.patch("kvpool", self._pool, self.change.patch())
        while not is_complete(after := await self._get()):
            if time.monotonic() - self.started_seconds > timeout_seconds:
                raise BackendError(f"expected the roll to complete in {timeout_seconds:g} s, found {conditions(after)}")
            looked(after)
            await asyncio.sleep(self._objects.look_seconds)
        looked(after)
        self._roll_seconds = time.monotonic() - self.started_seconds
        self._target = after["spec"]["precision"]
        self._sessions = after["status"].get("rollout", {}).get("sessions", {})
        self._kv_bytes_per_token = (_kv_bytes_per_token(before), _kv_bytes_per_token(after))

    def report(self, transcripts: list[Transcript], window: Window) -> dict[str, Any]:
        """The entry of `changes[]`; `transcripts` have ended."""
        return change_report(
            source=self._source,
            target=self._target,
            roll_seconds=self._roll_seconds,
            transcripts=transcripts,
            rollout_sessions=self._sessions,
            kv_bytes_per_token=self._kv_bytes_per_token,
            window=window,
        )

    async def _get(self) -> Object:
        return await self._objects.get("kvpool", self._pool)


async def all_stream(wave: Wave, timeout_seconds: float) -> None:
    """Returns once every slot of the wave streams.

    Raises:
        BackendError: one does not in time; the message holds the clients' errors.
    """
    deadline = time.monotonic() + timeout_seconds
    wanted = wave.load.sessions
    # A session that ended is about to be replaced: what counts is that each slot has had tokens.
    while (found := sum(1 for t in wave.slots if t is not None and t.arrivals)) < wanted:
        if time.monotonic() > deadline:
            errors = sorted({t.error for t in wave.transcripts if t.error}) or ["no error"]
            raise BackendError(
                f"expected {wanted} sessions to stream within {timeout_seconds:g} s, found {found}: {'; '.join(errors)}"
            )
        await asyncio.sleep(0.1)


def reports(rolls: list[Roll], transcripts: list[Transcript]) -> list[dict[str, Any]]:
    """The entries of several rolls under one wave: a roll's window lasts until the next one is patched."""
    edges = [roll.started_seconds for roll in rolls[1:]]
    starts = [Window().since_seconds, *(e for e in edges if e is not None)]
    ends = [*(e for e in edges if e is not None), Window().until_seconds]
    return [
        roll.report(transcripts, Window(since, until)) for roll, since, until in zip(rolls, starts, ends, strict=True)
    ]


def _kv_bytes_per_token(pool: Object) -> float:
    """What the workers report of themselves; 0 when the status does not say."""
    mix = pool.get("status", {}).get("precisionMix") or [{}]
    return float(mix[0].get("kvBytesPerToken", 0))
