"""`kvroll gate` against two `kvroll serve` processes."""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from kvroll_core.gate import Evidence, GateVerdict
from kvroll_worker.models.smollm2 import ensure_model
from tests.wire.test_serve import start, url_of

pytestmark = pytest.mark.slow
TEXTS = (
    "The ferry leaves the north pier at seven in the morning and again at noon.",
    "Water boils at 100 degrees Celsius at sea level, and at less on a high mountain.",
    "def area(radius):\n    return math.pi * radius ** 2\n",
    "The contract begins on the first of January and runs for two years.",
    "Once upon a time there was a fox who lived at the edge of a forest.",
    "Light travels faster than sound, which is why you see the lightning first.",
)


async def gate(baseline: str, candidate: str, dataset: Path, *flags: str) -> tuple[int, str]:
    command = [
        "-c",
        "from kvroll_cli.main import main; main()",
        "gate",
        "--baseline",
        baseline,
        "--candidate",
        candidate,
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--dataset", str(dataset), *flags, "-o", "json", stdout=PIPE, stderr=DEVNULL
    )
    told, _ = await process.communicate()
    return process.returncode or 0, told.decode()


@pytest.mark.model
@pytest.mark.timeout(1200)
async def test_weights_of_4_bits_fail_where_the_same_weights_pass(tmp_path: Path) -> None:
    dataset = tmp_path / "texts.jsonl"
    lines = [json.dumps({"text": text}) for text in TEXTS]
    dataset.write_text("\n".join([*lines, json.dumps({"prompt": "The capital of France is", "expected": " Paris"})]))
    model = tmp_path / "model"
    model.symlink_to(ensure_model())
    flags = ("--max-model-len", "256", "--kv-memory", "32MiB")
    servers = [await start(model, "--weights", weights, *flags) for weights in ("bf16", "int4")]
    try:
        old, new = [(await url_of(server))[0] for server in servers]
        bars = ("--bar", "top1Agreement>=0.97", "--bar", "taskScore>=1", "--min-samples", "2")
        code, told = await gate(old, old, dataset, *bars)
        assert (code, Evidence.from_json(json.loads(told)).verdict) == (0, GateVerdict.PASS)
        code, told = await gate(old, new, dataset, *bars)
        found = Evidence.from_json(json.loads(told))
        assert (code, found.verdict) == (1, GateVerdict.FAIL)
        assert found.metrics[0].control == 1.0
    finally:
        for server in servers:
            server.kill()
            await server.wait()
