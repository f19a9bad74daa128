"""A gate of source Job with the real Job controller: its Pod reaches both workers, and its figures and exit code are the verdict."""

import asyncio
from typing import Any

import pytest

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.backends.kubernetes import KubernetesBackend

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.only_on(
        "Kubernetes", reason="the embedded back end has no Job controller and no images: it refuses such a gate by name"
    ),
]

# What each worker says of itself becomes the figure: the bar holds only if the Job was told the right two.
JUDGE = """
import json, os, re, sys, urllib.request
def kv_cache(role):
    address = os.environ[f"KVROLL_{role}_HTTP"]
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        return re.search(r'kvroll_engine_info{[^}]*kv_cache="(\\w+)"', answer.read().decode())[1]
found = [kv_cache("BASELINE"), kv_cache("CANDIDATE")]
figures = {"metrics": {"accuracy": 0.95 if found == ["bf16", "int8"] else 0.0}, "samples": 12}
with open("/dev/termination-log", "w") as file:
    json.dump(figures, file)
print(found)
sys.exit(int(os.environ["JUDGE_EXIT"]))
"""


def gate(pool: TrialPool, exit_code: int) -> dict[str, Any]:
    assert isinstance(pool.backend, KubernetesBackend)
    site = pool.backend.site
    judge: dict[str, Any] = {
        "name": "judge",
        "image": site.image,
        "command": ["python3", "-c", JUDGE],
        "env": [*site.env, {"name": "JUDGE_EXIT", "value": str(exit_code)}],
        "volumeMounts": list(site.mounts),
    }
    if site.is_local:
        judge["imagePullPolicy"] = "Never"
    pod = {"containers": [judge], "volumes": list(site.volumes)}
    return {
        "source": "Job",
        "at": ["Canary"],
        "job": {"template": {"template": {"spec": pod}}},
        "metrics": [{"name": "accuracy", "min": 0.9}],
        "minSamples": 10,
    }


@pytest.mark.parametrize(
    ("exit_code", "outcome", "verdict"),
    [(0, "Complete", "Pass"), (1, "Failed", "Fail")],
    ids=["passes", "fails"],
)
def test_gate_by_a_job(pool: TrialPool, exit_code: int, outcome: str, verdict: str) -> None:
    async def scenario() -> None:
        await pool.apply(replicas=1, gate=gate(pool, exit_code))
        await pool.patch(precision={"kvCache": "int8"})
        await pool.until_rolling()
        await (pool.until_complete(240) if outcome == "Complete" else pool.until_phase(outcome, 240))
        shown = (await pool.status())["gate"]
        assert (shown["verdict"], shown["samples"]) == (verdict, 12), shown
        (accuracy,) = shown["metrics"]
        assert (accuracy["name"], accuracy["value"]) == ("accuracy", 0.95), "it was told another pair of workers"
        jobs = await pool.objects.list("job", "kvroll.dev/gate=Canary")
        (job,) = [j for j in jobs if j["metadata"]["ownerReferences"][0]["name"] == pool.name]
        assert job["status"].get("succeeded", 0) == 1 - exit_code
        assert not [p for p in await pool.pods() if "job-name" in p["metadata"]["labels"]], "the Job's Pod is no worker"

    asyncio.run(scenario())
