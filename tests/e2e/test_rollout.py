"""A precision change of a live pool, as kubectl shows it and as clients feel it."""

import asyncio

import pytest

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.backends.objects import is_complete
from kvroll_cli.demo.load.pace import Lasting
from kvroll_cli.demo.report import Window, faults
from kvroll_cli.demo.roll import DemoChange, Roll

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]


def test_roll_under_streaming_load(pool: TrialPool) -> None:
    async def scenario() -> None:
        await pool.apply(replicas=2)
        old = {p["metadata"]["uid"] for p in await pool.pods()}
        wave = pool.wave(8, Lasting(seconds=25, fewest=140, most=600))
        wave.start()
        roll = Roll(pool.objects, pool.name, wave, DemoChange(kv_cache="int8"))
        await roll.run(timeout_seconds=400)
        assert is_complete(await pool.objects.get("kvpool", pool.name))
        now = await pool.pods()
        assert len(now) == 2, "RolloutComplete with a pod too many or too few"
        assert not old & {p["metadata"]["uid"] for p in now}, "RolloutComplete although an old worker is left"
        change = roll.report(await wave.finish(), Window())
        assert faults({"changes": [change]}) == []
        assert change["sessions"]["held"] >= 2
        assert change["sessions"]["converted"] >= 1
        assert change["kv"]["bytes_per_token_to"] < change["kv"]["bytes_per_token_from"]
        assert change["kv"]["wire_bytes"] >= change["kv"]["unique_bytes"] > 0

    asyncio.run(scenario())
