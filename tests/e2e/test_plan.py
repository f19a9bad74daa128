"""The price that a rollout was given stands beside what it came to, on a live pool under streaming load: sessions, bytes and tokens."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvroll_bench.planned import PLANNED_CASES, PlannedCase, planned_and_actual
from kvroll_bench.trial import TrialPool

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(900)]

KVROLL = str(Path(sys.executable).with_name("kvroll"))
FIGURES_WITHIN = 0.3


@pytest.mark.parametrize("case", PLANNED_CASES.values(), ids=PLANNED_CASES)
def test_planned_beside_actual(pool: TrialPool, case: PlannedCase) -> None:
    plan = asyncio.run(planned_and_actual(pool, case))
    cost, actual = plan["cost"], plan["actual"]
    print(json.dumps(plan, indent=2))  # what a failure is judged by
    assert actual["held"] > 0
    assert cost["held"] == pytest.approx(actual["held"], rel=FIGURES_WITHIN, abs=2)
    assert cost["bytesToMove"] == pytest.approx(actual["bytesMoved"], rel=FIGURES_WITHIN)
    assert cost["tokensToReplay"] == pytest.approx(actual["tokensReplayed"], rel=FIGURES_WITHIN)
    # Not how many seconds: what else this machine does meanwhile decides that (`make bench PART=plan`).
    assert cost["seconds"] > 0
    assert actual["seconds"] > 0


def test_a_file_is_priced_and_its_rollout_waits_for_approval(
    pool: TrialPool, kvroll_environment: dict[str, str], tmp_path: Path
) -> None:
    def kvroll(*arguments: str) -> str:
        command = [KVROLL, *arguments, "-n", pool.objects.namespace]
        done = subprocess.run(command, env=kvroll_environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    async def scenario() -> None:
        await pool.apply(replicas=2, rollout={"approval": "Plan"})
        changed = pool.backend.pool(
            pool.name, replicas=2, model_name=pool.name, kv_cache="int8", rollout={"approval": "Plan"}
        )
        file = tmp_path / "pool.yaml"
        file.write_text(json.dumps(changed))
        old = {p["metadata"]["uid"] for p in await pool.pods()}
        priced = json.loads(kvroll("plan", "-f", str(file), "-o", "json"))
        assert priced["to"].endswith("/int8")
        assert {r["name"]: r["source"] for r in priced["plan"]["rates"]}["startSeconds"] == "Measured"
        await pool.apply(replicas=2, ready_seconds=0, kv_cache="int8", rollout={"approval": "Plan"})
        await pool.until_phase("AwaitingApproval", timeout_seconds=60)
        await asyncio.sleep(5)
        assert {p["metadata"]["uid"] for p in await pool.pods()} == old, "a worker was made before the approval"
        kvroll("approve", pool.name)
        await pool.until_complete(300)
        assert not old & {p["metadata"]["uid"] for p in await pool.pods()}

    asyncio.run(scenario())
