"""kubectl against the embedded server: each verb that the documents name, by the binary itself."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from kvroll_local.api.pod_logs import log_path
from kvroll_local.api.server import ApiServer
from tests.local.api.conftest import POOLS, client_of, pool

KUBECTL = shutil.which("kubectl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(KUBECTL is None, reason="no kubectl on PATH: `make cluster-up` builds one, then eval its env"),
]


class Kubectl:
    """Runs kubectl with the server's kubeconfig and a discovery cache of its own."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        kubeconfig = folder / "kubeconfig"
        server.access.write_kubeconfig(kubeconfig, server.url)
        self.env = {**os.environ, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(folder / "cache")}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            KUBECTL or "kubectl", *arguments, env=self.env, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )

    async def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        process = await self.start(*arguments)
        out, err = await process.communicate(stdin.encode())
        assert process.returncode == code, f"kubectl {arguments}: {process.returncode}\n{out.decode()}\n{err.decode()}"
        return out.decode() + (err.decode() if code else "")


@pytest.fixture
def kubectl(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(server, tmp_path_factory.mktemp("kubectl"))


async def test_apply_get_patch_scale_label_delete(kubectl: Kubectl) -> None:
    manifest = json.dumps(pool())
    assert "created" in await kubectl("apply", "-f", "-", stdin=manifest)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=manifest)
    assert "configured" in await kubectl("apply", "-f", "-", stdin=json.dumps(pool(replicas=5)))
    assert "server dry run" in await kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(pool(replicas=6)))
    heads, row = (await kubectl("get", "kvp")).splitlines()
    assert heads.split()[:4] == ["NAME", "MODEL", "WEIGHTS", "KV"]
    assert row.split()[:4] == ["chat", "chat", "bf16", "bf16"]
    assert "patched" in await kubectl(
        "patch", "kvpool", "chat", "--type=merge", "-p", '{"spec":{"precision":{"kvCache":"int8"}}}'
    )
    await kubectl("scale", "kvpool", "chat", "--replicas=7")
    await kubectl("label", "kvpool", "chat", "a=b")
    await kubectl("annotate", "kvpool", "chat", "kvroll.dev/note=x")
    found = json.loads(await kubectl("get", "kvpool", "chat", "-o", "json"))
    assert (found["spec"]["precision"]["kvCache"], found["spec"]["replicas"]) == ("int8", 7)
    assert found["metadata"]["labels"] == {"a": "b"}
    assert "chat" in await kubectl("get", "kvroll")
    assert "Kind:" in await kubectl("describe", "kvpool", "chat")
    assert "deleted" in await kubectl("delete", "kvpool", "chat")
    assert "not found" in await kubectl("get", "kvpool", "chat", code=1)


async def test_mistakes_are_refused_in_words(kubectl: Kubectl) -> None:
    wrong = pool(precision={"weights": "bf16", "kvCache": "int3"})
    assert 'Unsupported value: "int3"' in await kubectl("apply", "-f", "-", stdin=json.dumps(wrong), code=1)
    assert 'unknown field "spec.sessionz"' in await kubectl(
        "apply", "-f", "-", stdin=json.dumps(pool(sessionz={})), code=1
    )
    words = await kubectl(
        "apply", "-f", "-", stdin=json.dumps(pool(rollout={"maxSurge": 0, "maxUnavailable": 0})), code=1
    )
    assert "maxSurge" in words


async def test_server_side_apply_and_its_conflicts(kubectl: Kubectl) -> None:
    arguments = ["apply", "--server-side", "-f", "-"]
    assert "serverside-applied" in await kubectl(*arguments, stdin=json.dumps(pool()))
    words = await kubectl(*arguments, "--field-manager=other", stdin=json.dumps(pool(replicas=4)), code=1)
    assert "conflict" in words
    await kubectl(*arguments, "--field-manager=other", "--force-conflicts", stdin=json.dumps(pool(replicas=4)))
    assert await kubectl("get", "kvpool", "chat", "-o", "jsonpath={.spec.replicas}") == "4"


async def test_explain_reads_the_schemas(kubectl: Kubectl) -> None:
    assert "kvCache" in await kubectl("explain", "kvpool.spec.precision")
    assert "terminationGracePeriodSeconds" in await kubectl("explain", "pod.spec")
    assert "kvpools" in await kubectl("api-resources")


async def test_wait_and_get_w_follow_changes(server: ApiServer, kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=json.dumps(pool()))
    waiting = await kubectl.start("wait", "kvpool/chat", "--for=condition=Ready", "--timeout=60s")
    watching = await kubectl.start("get", "kvpool", "-w")
    assert watching.stdout is not None
    assert b"NAME" in await watching.stdout.readline()
    assert b"chat" in await watching.stdout.readline()
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    async with client_of(server) as api:
        merge = {"Content-Type": "application/merge-patch+json"}
        status: dict[str, Any] = {"status": {"ready": "3/3", "conditions": [condition]}}
        (await api.patch(f"{POOLS}/chat/status", json=status, headers=merge)).raise_for_status()
    assert b"3/3" in await watching.stdout.readline()
    out, err = await waiting.communicate()
    assert waiting.returncode == 0, err
    assert b"condition met" in out
    watching.kill()
    await watching.wait()
    deleted = await kubectl.start("wait", "kvpool/chat", "--for=delete", "--timeout=60s")
    await kubectl("delete", "kvpool", "chat", "--wait=false")
    await deleted.communicate()
    assert deleted.returncode == 0


async def test_logs_of_a_pod(server: ApiServer, kubectl: Kubectl) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    await kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    uid = await kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    path = log_path(server.state, uid, "main")
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\n")
    assert await kubectl("logs", "p") == "one\ntwo\n"
    assert await kubectl("logs", "p", "--tail=1") == "two\n"
    assert (await kubectl("get", "pods")).splitlines()[1].split()[:3] == ["p", "0/1", "Pending"]
    assert "embedded API server" in await kubectl("exec", "p", "--", "true", code=1)
    await kubectl("delete", "pod", "p")
