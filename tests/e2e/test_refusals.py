"""What a wrong spec gets: a readable refusal at the API server, or the arithmetic at the worker's door."""

import asyncio
import json
from typing import Any

import pytest

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.backends.objects import BackendError

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]


def changed(pool: TrialPool, path: str, value: Any) -> dict[str, Any]:
    made = pool.backend.pool(pool.name, replicas=1, model_name=pool.name)
    place = made["spec"]
    *parents, last = path.split(".")
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("precision.kvCache", "int3", ["kvCache", "int3", "int8"]),
        ("precision.residualTokens", 64, ["residualTokens", "kivi2"]),
        ("replicas", -1, ["replicas"]),
        ("model.uri", "hf://org/name", ["uri", "file://"]),
        ("rollout", {"maxSurge": 0, "maxUnavailable": 0}, ["maxSurge", "maxUnavailable"]),
        ("sessionz", {}, ["sessionz"]),
        ("gate", {"source": "Builtin"}, ["gate.metrics", "no quality threshold has a default"]),
    ],
)
def test_invalid_pool_is_refused_by_the_api_server(pool: TrialPool, path: str, value: Any, words: list[str]) -> None:
    async def scenario() -> None:
        with pytest.raises(BackendError) as refused:
            await pool.objects.apply(changed(pool, path, value))
        for word in words:
            assert word in str(refused.value), f"{word!r} is not in: {refused.value}"

    asyncio.run(scenario())


@pytest.mark.model
def test_spec_that_cannot_fit_says_the_arithmetic(pool: TrialPool) -> None:
    async def scenario() -> None:
        await pool.apply(replicas=1, ready_seconds=0, kv_memory="1Mi")
        async with asyncio.timeout(120):
            while "KV" not in (text := json.dumps((await pool.status()).get("conditions", []))) or "MiB" not in text:
                await asyncio.sleep(1)
        conditions = {c["type"]: c for c in (await pool.status())["conditions"]}
        assert conditions["Ready"]["status"] == "False"
        assert conditions["RolloutComplete"]["status"] == "False"

    asyncio.run(scenario())
