"""The operator's process against a real API server and kubelet, with stub workers: needs `make cluster-up` and its environment."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvroll_cluster.host_mounts import host_mounts, mounted_paths

ROOT = Path(__file__).parents[2]
NAMESPACE = "kvroll-operator-test"
PORT = 18981

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not os.environ.get("KUBECONFIG") or not shutil.which("kubectl"),
        reason="needs KUBECONFIG and kubectl",
    ),
]


def kubectl(*args: str, stdin: str = "", check: bool = True) -> str:
    done = subprocess.run(["kubectl", *args], input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise AssertionError(f"kubectl {' '.join(args)}: {done.stderr}")
    return done.stdout + done.stderr


def pool(**spec: Any) -> dict[str, Any]:
    venv = ROOT / ".venv"
    mounts = host_mounts(mounted_paths(ROOT, venv))
    container = {
        "name": "engine",
        "imagePullPolicy": "Never",
        "command": [str(venv / "bin" / "python"), str(ROOT / "tests" / "operator" / "stub_worker.py")],
        "env": [{"name": "PYTHONPATH", "value": f"{ROOT / 'proto'}:{ROOT}"}],
        "volumeMounts": mounts["volumeMounts"],
    }
    usual: dict[str, Any] = {
        "replicas": 2,
        "model": {"name": "stub", "uri": "file:///none"},
        "precision": {"weights": "bf16", "kvCache": "bf16"},
        "engine": {"image": "localhost/kvroll:dev"},
        "template": {"spec": {"containers": [container], "volumes": mounts["volumes"]}},
    }
    return {
        "apiVersion": "kvroll.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "stub", "namespace": NAMESPACE},
        "spec": {**usual, **spec},
    }


def gate(**spec: Any) -> dict[str, Any]:
    return {"source": "Builtin", "metrics": [{"name": "top1Agreement", "min": 0.9}], **spec}


def wait_complete(seconds: int = 180) -> None:
    kubectl("wait", "-n", NAMESPACE, "kvpool/stub", "--for=condition=RolloutComplete", f"--timeout={seconds}s")


def patch(**spec: Any) -> None:
    kubectl("patch", "-n", NAMESPACE, "kvpool/stub", "--type=merge", "-p", json.dumps({"spec": spec}))


def status() -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(kubectl("get", "-n", NAMESPACE, "kvpool/stub", "-o", "json"))["status"]
    return shown


def worker_pods() -> dict[str, str]:
    items = json.loads(kubectl("get", "pods", "-n", NAMESPACE, "-l", "kvroll.dev/pool=stub", "-o", "json"))["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


@pytest.fixture(scope="module", autouse=True)
def crds() -> Iterator[None]:
    """Our CRDs; taken away again only if they were not there before."""
    had = "kvpools.kvroll.dev" in kubectl("get", "crd", "-o", "name")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl("wait", "--for=condition=Established", "crd/kvpools.kvroll.dev", "crd/kvdrains.kvroll.dev", "--timeout=30s")
    kubectl("create", "namespace", NAMESPACE, check=False)
    yield
    kubectl("delete", "namespace", NAMESPACE, "--timeout=180s", check=False)
    if not had:
        kubectl("delete", "-f", str(ROOT / "crds"), "--wait=false", check=False)


class Operator:
    """The operator's process on this machine."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("a")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = ":".join(str(ROOT / room) for room in ("core", "operator", "proto"))
        command = [
            sys.executable,
            "-m",
            "kvroll_operator",
            "--namespace",
            NAMESPACE,
            "--host",
            "127.0.0.1",
            "--port",
            str(PORT),
        ]
        self._process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=self._log)

    def kill(self) -> None:
        """Ends it without a word."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Asks it to end; its exit status."""
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(30)
        self._log.close()
        return status


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    made = Operator(tmp_path / "operator.log")
    made.start()
    yield made
    kubectl("delete", "-n", NAMESPACE, "kvpool/stub", "--ignore-not-found", "--timeout=120s")
    assert made.stop() == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"precision": {"weights": "bf16", "kvCache": "int8", "residualTokens": 64}},
            "residualTokens means something with kvCache kivi2 and kivi4 alone",
        ),
        ({"model": {"name": "m", "uri": "s3://bucket/m"}}, "s3 and oci are not built in this version"),
        ({"rollout": {"maxSurge": 0}}, "maxSurge and maxUnavailable cannot both be 0"),
        ({"sessions": {"allow": ["Drop", "Finish"]}}, "Drop loses sessions, so it must be last"),
        ({"sessions": {"allow": ["Checkpoint", "Finish"]}}, "Checkpoint is not built"),
        ({"evacuation": {}}, 'unknown field "spec.evacuation"'),
        ({"gate": {}}, "spec.gate.source: Required value"),
        ({"gate": gate(metrics=[])}, "no quality threshold has a default"),
        ({"gate": gate(metrics=[{"name": "top1Agreement", "min": 0.9, "max": 1}])}, "needs either min or max"),
        ({"gate": gate(metrics=[{"name": "accuracy", "min": 0.9}])}, "source Builtin measures top1Agreement, "),
        ({"gate": gate(at=["Final"])}, "gate.at needs Canary or EveryGroup"),
        ({"gate": gate(source="HTTP")}, "gate.http belongs to source HTTP, which needs it"),
        ({"gate": gate(job={"template": {}})}, "gate.job belongs to source Job"),
        ({"gate": gate(dataset={"uri": "s3://b/d"})}, "must be http://, https:// or file:///"),
        ({"gate": gate(dataset={})}, "exactly one of configMap and uri"),
        ({"gate": gate(source="HTTP", http={"url": "ftp://x"})}, "must be an http:// or https:// address"),
        ({"gate": gate(source="Prometheus", prometheus={"address": "http://p"})}, "query belongs to source Prometheus"),
    ],
)
def test_the_api_server_refuses_with_a_readable_message(spec: dict[str, Any], message: str) -> None:
    said = kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pool(**spec)), check=False)
    assert message in said


def test_the_model_name_is_immutable_and_the_fields_are_explained(operator: Operator) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(pool(replicas=0)))
    kubectl("wait", "-n", NAMESPACE, "kvpool/stub", "--for=jsonpath={.status.ready}=0/0", "--timeout=60s")
    other = '{"spec": {"model": {"name": "other"}}}'
    said = kubectl(
        "patch", "-n", NAMESPACE, "kvpool/stub", "--type=merge", "-p", other, "--dry-run=server", check=False
    )
    assert "model.name is immutable" in said
    assert "dtype of the KV cache" in kubectl("explain", "kvpools.spec.precision", "--api-version=kvroll.dev/v1alpha1")
    columns = kubectl("get", "kvp", "-n", NAMESPACE).splitlines()[0].split()
    assert columns == [
        "NAME",
        "MODEL",
        "WEIGHTS",
        "KV",
        "READY",
        "UPDATED",
        "ROLLOUT",
        "GROUP",
        "SESSIONS",
        "LOST",
        "GATE",
        "WALL",
        "AGE",
    ]


def test_a_roll_survives_the_operators_death_and_loses_no_session(operator: Operator) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(pool()))
    wait_complete()
    patch(precision={"kvCache": "int8"})
    deadline = time.monotonic() + 120
    while not kubectl("get", "kvdrains", "-n", NAMESPACE, "-o", "name").strip():
        assert time.monotonic() < deadline, "no drain began"
        time.sleep(0.2)
    operator.kill()
    operator.start()
    wait_complete()
    rollout = status()["rollout"]
    assert (rollout["phase"], rollout["group"], rollout["reason"]) == ("Complete", "2/2", "Update")
    assert rollout["sessions"]["held"] == rollout["sessions"]["moved"] == 8
    assert rollout["sessions"]["lost"] == 0
    assert {mix["kvCache"] for mix in status()["precisionMix"]} == {"int8"}


def test_a_gate_lets_one_precision_in_and_holds_another(operator: Operator) -> None:
    """The stub's scores at KV dtype fp8_e4m3 are off, at int8 they are not."""
    kubectl("create", "-f", "-", stdin=json.dumps(pool(gate=gate(minSamples=4))))
    wait_complete()
    patch(precision={"kvCache": "int8"})
    wait_complete()
    passed = status()["gate"]
    assert (passed["verdict"], passed["point"]) == ("Pass", "Canary")
    annotations = json.loads(kubectl("get", "-n", NAMESPACE, "controllerrevision", passed["evidence"], "-o", "json"))
    (stored,) = json.loads(annotations["metadata"]["annotations"]["kvroll.dev/evidence"])
    assert hashlib.sha256(stored["report"].encode()).hexdigest() == stored["digest"] == passed["digest"]
    before = worker_pods()
    patch(precision={"kvCache": "fp8_e4m3"})
    kubectl("wait", "-n", NAMESPACE, "kvpool/stub", "--for=jsonpath={.status.rollout.phase}=Failed", "--timeout=120s")
    kubectl("wait", "-n", NAMESPACE, "kvpool/stub", "--for=condition=GatePassed=False", "--timeout=10s")
    deadline = time.monotonic() + 60
    while worker_pods() != before:
        assert time.monotonic() < deadline, "the new worker has not left, or an old one has"
        time.sleep(0.5)
    assert status()["ready"] == "2/2"
    reasons = kubectl("get", "events", "-n", NAMESPACE, "-o", "jsonpath={.items[*].reason}")
    assert {"GateStarted", "GatePassed", "GateFailed", "RolloutFailed"} <= set(reasons.split())


def test_a_deleted_worker_is_replaced_and_the_pool_scales(operator: Operator) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(pool()))
    wait_complete()
    name, uid = next(iter(worker_pods().items()))
    kubectl("delete", "pod", "-n", NAMESPACE, name, "--wait=true")
    wait_complete()
    assert uid not in worker_pods().values()
    kubectl("scale", "-n", NAMESPACE, "kvpool/stub", "--replicas=1")
    wait_complete()
    assert len(worker_pods()) == 1
    reasons = kubectl("get", "kvdrains", "-n", NAMESPACE, "-o", "jsonpath={.items[*].spec.reason}")
    assert "Scale" in reasons
