"""The demo from start to end: a pool, live streams, two precision changes, what it cost."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kvroll_cli.demo import model
from kvroll_cli.demo.backends.backend import MODEL_NAME, Backend
from kvroll_cli.demo.backends.objects import BackendError, Object, is_complete, until
from kvroll_cli.demo.load.pace import Lasting
from kvroll_cli.demo.load.wave import Wave, WaveLoad
from kvroll_cli.demo.report import faults, shortfalls
from kvroll_cli.demo.roll import DemoChange, Roll, all_stream, reports
from kvroll_cli.demo.scene import Precisions, Scene, scene
from kvroll_cli.demo.screen import Screen

POOL = "demo"
WORKERS = 3
KV_MEMORY = "384Mi"
# All sessions of the wave fit one worker's KV memory, which is where they are while the others change.
# Short prompts: a replay computes the prompt as well, which is no longer there to be watched.
LOAD = WaveLoad(sessions=24, pace=Lasting(seconds=50, fewest=240, most=600), shared_prompt_fraction=0.0)
# First one group after the other, on two spare devices. A weights change makes every session's KV cache stale, so the second change spends
# a spare device a group and leaves Exact out: each session is replayed once, on the new weights, instead of hopping between old workers.
# A replay computes: two at a time are through one after the other, all at once end together, when many a session has ended by itself.
REPLAY_AT_ONCE = ("FinishSoon", "Replay", "Finish")
CHANGES = (
    DemoChange(kv_cache="int8", max_surge=2),
    DemoChange(weights="int8", max_surge=WORKERS, allow=REPLAY_AT_ONCE, per_worker=2),
)
LEAST = [{"held": 16, "converted": 8}, {"held": 16, "replayed": 8}]
"""What a run must have shown of each change."""
_HANDS_ON = ("Draining", "Sealed", "Retiring", "Updated")
_READY_SECONDS = 300
_ROLL_SECONDS = 900
_BETWEEN_SECONDS = 3
"""How long the wave streams undisturbed before each change."""


class Story:
    """One run. Whatever happens, what `backend` began is ended."""

    def __init__(self, backend: Backend, screen: Screen) -> None:
        self._backend, self._screen = backend, screen
        self._precisions = Precisions()
        self._pool: Object = {"metadata": {}, "spec": {}}
        self._pods: list[Object] = []
        self._wave: Wave | None = None
        self._title = ""
        self._title_since = time.monotonic()

    async def run(self) -> dict[str, Any]:
        """The report.

        Raises:
            BackendError: something did not come up or did not complete.
        """
        self._enter(f"the model: {MODEL_NAME}")
        await model.ensure()
        try:
            self._enter(self._backend.opening)
            await self._backend.start()
            return await self._play()
        finally:
            if self._wave is not None:
                await self._wave.abandon()
            self._screen.say("end: workers, gateway and operator leave")
            await self._backend.stop()

    async def _play(self) -> dict[str, Any]:
        objects = self._backend.objects
        self._enter(f"{WORKERS} workers start: weights bf16, KV cache bf16")
        await objects.apply(self._backend.pool(POOL, replicas=WORKERS, kv_memory=KV_MEMORY))
        ready = await until(
            objects, "kvpool", POOL, self._seen(is_complete), timeout_seconds=_READY_SECONDS, what="complete"
        )
        url = await self._backend.gateway_url()
        pods = await objects.list("pod", f"kvroll.dev/pool={POOL}")
        report = {
            "backend": self._backend.name,
            **await self._backend.facts(),
            "workers": len(pods),
            "sessions": LOAD.sessions,
        }
        self._pool, self._pods = ready, pods
        wave = self._wave = Wave(url, MODEL_NAME, LOAD)
        watching = asyncio.create_task(self._follow_pods())
        try:
            rolls = [await self._roll(wave, change) for change in CHANGES]
            self._enter("both changes are through; the last chats end")
            transcripts = await self._until_finished(wave)
        finally:
            watching.cancel()
        report["changes"] = reports(rolls, transcripts)
        report["faults"] = [*faults(report), *shortfalls(report, LEAST)]
        return report

    async def _roll(self, wave: Wave, change: DemoChange) -> Roll:
        if not wave.transcripts:
            self._enter(f"{LOAD.sessions} chats begin")
            wave.start()
        await all_stream(wave, _READY_SECONDS)
        await asyncio.sleep(_BETWEEN_SECONDS)
        self._enter(f"{LOAD.sessions} chats stream; patch: {change}")
        roll = Roll(self._backend.objects, POOL, wave, change)

        def looked(pool: Object) -> None:
            if change is CHANGES[-1] and not has_groups_to_drain(pool):
                wave.stop()  # those that are held shall have the new workers for themselves
            self._saw(pool)

        await roll.run(_ROLL_SECONDS, looked)
        return roll

    async def _until_finished(self, wave: Wave) -> list[Any]:
        ending = asyncio.create_task(wave.finish())
        while not ending.done():
            self._screen.show(self._look)
            await asyncio.wait([ending], timeout=1)
        return await ending

    async def _follow_pods(self) -> None:
        while True:
            with suppress(BackendError):  # the next look is soon; the roll itself says what fails
                self._pods = await self._backend.objects.list("pod", f"kvroll.dev/pool={POOL}")
            await asyncio.sleep(self._backend.objects.look_seconds * 2)

    def _seen(self, holds: Callable[[Object], bool]) -> Callable[[Object], bool]:
        def looked(found: Object) -> bool:
            self._saw(found)
            return holds(found)

        return looked

    def _saw(self, pool: Object) -> None:
        self._pool = pool
        self._precisions.learn(pool)
        self._screen.show(self._look)

    def _enter(self, title: str) -> None:
        self._title, self._title_since = title, time.monotonic()
        self._screen.say(title)

    def _look(self) -> Scene:
        wave = self._wave
        return scene(
            title=self._title,
            seconds=time.monotonic() - self._title_since,
            slots=wave.slots if wave else (),
            transcripts=wave.transcripts if wave else (),
            pool=self._pool,
            pods=self._pods,
            precisions=self._precisions,
            tokens_per_second=wave.tokens_per_second() if wave else None,
        )


def has_groups_to_drain(pool: Object) -> bool:
    """True until every group has begun to hand its sessions on."""
    return any(group.get("phase") not in _HANDS_ON for group in pool.get("status", {}).get("groups", ()))
