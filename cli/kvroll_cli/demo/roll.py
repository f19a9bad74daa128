"""One precision change under load: a wave streams, the pool is patched, the roll is watched to its end."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from kvroll_cli.demo.kube import CommandError, Kube
from kvroll_cli.demo.report import change_report
from kvroll_cli.demo.wave import Shape, Wave

WATCH_SECONDS = 2.0  # a kubectl a second would be a load of its own on two cores
SHOWN = ("held", "exact", "converted", "replayed", "finishedSoon", "finished", "checkpointed", "lost")


@dataclass(frozen=True)
class Change:
    """The dtype words to set, how many groups may surge at once and which ways on are allowed; None leaves one as it is."""

    weights: str | None = None
    kv_cache: str | None = None
    max_surge: int | None = None
    allow: tuple[str, ...] | None = None

    def patch(self) -> dict[str, Any]:
        """The merge patch of the pool."""
        words = {"weights": self.weights, "kvCache": self.kv_cache}
        spec: dict[str, Any] = {"precision": {k: v for k, v in words.items() if v is not None}}
        if self.max_surge is not None:
            spec["rollout"] = {"maxSurge": self.max_surge}
        if self.allow is not None:
            spec["sessions"] = {"allow": list(self.allow)}
        return {"spec": spec}

    def __str__(self) -> str:
        return json.dumps(self.patch())


class Roll:
    """Runs one change on a pool and keeps what the report needs."""

    def __init__(self, kube: Kube, pool: str, url: str, model: str, shape: Shape, console: Console) -> None:
        self._kube, self._pool, self._console = kube, pool, console
        self._wave = Wave(f"wave-{time.monotonic_ns()}", url, model, shape)
        self._source: dict[str, str] = {}
        self._target: dict[str, str] = {}
        self._roll_seconds = 0.0
        self._shown = ""
        self._sessions: dict[str, int] = {}
        self._kv_bytes_per_token = (0.0, 0.0)

    async def run(self, change: Change, timeout_seconds: float = 300, settle_seconds: float = 0.0) -> None:
        """Streams, for so long undisturbed, patches, and returns when the roll is complete and no new session is started; open ones go on.

        Raises:
            CommandError: the roll did not complete in time; the message holds the pool's conditions.
        """
        before = await self._get()
        self._source = before["spec"]["precision"]
        self._wave.start()
        await self._until_all_stream()
        await asyncio.sleep(settle_seconds)
        started = time.monotonic()
        await self._kube.kubectl("patch", "kvpool", self._pool, "--type=merge", "-p", json.dumps(change.patch()))
        while not _is_complete(after := await self._get()):
            if time.monotonic() - started > timeout_seconds:
                raise CommandError(f"the roll did not complete in {timeout_seconds} s: {_conditions(after)}")
            self._show(after, time.monotonic() - started)
            await asyncio.sleep(WATCH_SECONDS)
        self._roll_seconds = time.monotonic() - started
        self._show(after, self._roll_seconds)
        self._wave.stop()
        self._target = after["spec"]["precision"]
        self._sessions = after["status"].get("rollout", {}).get("sessions", {})
        self._kv_bytes_per_token = (_kv_bytes_per_token(before), _kv_bytes_per_token(after))

    async def report(self) -> dict[str, Any]:
        """Waits for the open sessions and returns the entry of `changes[]`."""
        return change_report(
            source=self._source,
            target=self._target,
            roll_seconds=self._roll_seconds,
            transcripts=await self._wave.finish(),
            rollout_sessions=self._sessions,
            kv_bytes_per_token=self._kv_bytes_per_token,
        )

    async def _until_all_stream(self, timeout_seconds: float = 120) -> None:
        deadline = time.monotonic() + timeout_seconds
        wanted = self._wave.shape.sessions
        while self._wave.num_streaming < wanted:
            if time.monotonic() > deadline:
                errors = {t.error for t in self._wave.transcripts if t.error}
                raise CommandError(
                    f"only {self._wave.num_streaming} of {wanted} sessions stream after {timeout_seconds} s: {errors}"
                )
            await asyncio.sleep(0.2)

    async def _get(self) -> dict[str, Any]:
        return await self._kube.get("kvpool", self._pool)

    def _show(self, pool: dict[str, Any], seconds: float) -> None:
        status = pool.get("status", {})
        groups = "  ".join(f"{g['id']}:{g.get('phase', '?')}({g.get('sessions', 0)})" for g in status.get("groups", ()))
        sessions = status.get("rollout", {}).get("sessions", {})
        counts = " ".join(f"{way} {sessions[way]}" for way in SHOWN if sessions.get(way))
        line = f"{groups}  [dim]{counts}[/]"
        if line != self._shown:  # a line a change, as `kubectl get -w` does it
            self._console.print(f"  {seconds:5.1f} s  {self._wave.num_streaming:2d} streams  {line}")
        self._shown = line


def _is_complete(pool: dict[str, Any]) -> bool:
    """As `kubectl wait --for=condition=RolloutComplete` judges it."""
    generation = pool["metadata"]["generation"]
    return any(
        c["type"] == "RolloutComplete" and c["status"] == "True" and c.get("observedGeneration", 0) >= generation
        for c in pool.get("status", {}).get("conditions", ())
    )


def _conditions(pool: dict[str, Any]) -> str:
    conditions = pool.get("status", {}).get("conditions", ())
    return "; ".join(f"{c['type']}={c['status']}/{c.get('reason')}: {c.get('message', '')}" for c in conditions)


def _kv_bytes_per_token(pool: dict[str, Any]) -> float:
    """What the workers report of themselves; 0 when the status does not say."""
    mix = pool.get("status", {}).get("precisionMix") or [{}]
    return float(mix[0].get("kvBytesPerToken", 0))
