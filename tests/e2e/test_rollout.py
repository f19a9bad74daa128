"""A precision change of a live pool, as kubectl shows it and as clients feel it."""

import asyncio

import pytest
from rich.console import Console

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.report import faults
from kvroll_cli.demo.roll import Change, Roll
from kvroll_cli.demo.wave import Shape

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(600)]


def test_roll_under_streaming_load(pool: TrialPool) -> None:
    async def scenario() -> None:
        await pool.apply(replicas=2)
        old = {p["metadata"]["uid"] for p in await pool.pods()}
        shape = Shape(sessions=8, max_tokens=(500, 600, 100, 700), replacement_tokens=100)
        roll = Roll(pool.kube, pool.name, pool.url, pool.name, shape, Console(quiet=True))
        await roll.run(Change(kv_cache="int8"))
        await pool.kube.wait("condition=RolloutComplete", f"kvpool/{pool.name}", timeout_seconds=1)
        now = await pool.pods()
        assert len(now) == 2, "RolloutComplete with a pod too many or too few"
        assert not old & {p["metadata"]["uid"] for p in now}, "RolloutComplete although an old worker is left"
        change = await roll.report()
        assert faults({"changes": [change]}) == []
        assert change["sessions"]["held"] >= 2
        assert change["sessions"]["converted"] >= 1
        assert change["kv"]["bytes_per_token_to"] < change["kv"]["bytes_per_token_from"]
        assert change["kv"]["wire_bytes"] >= change["kv"]["unique_bytes"] > 0

    asyncio.run(scenario())
