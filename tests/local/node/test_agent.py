"""What becomes of Pods: processes, statuses, ends; and what an agent's death changes, which is nothing."""

import json
import os
import signal
from typing import Any

import pytest

from kvroll_local.node.client import NodeApiError

from .conftest import PODS, Node, is_alive, until

pytestmark = pytest.mark.slow  # every one starts processes

SERVER = "import http.server, os; http.server.HTTPServer((os.environ['IP'], 7070), http.server.SimpleHTTPRequestHandler).serve_forever()"
POD_IP = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def conditions(pod: dict[str, Any]) -> dict[str, Any]:
    return {c["type"]: c for c in pod["status"]["conditions"]}


async def test_a_process_has_its_pods_address_and_variables_and_no_shells(node: Node) -> None:
    program = "import json, os, time; print(json.dumps(dict(os.environ))); time.sleep(1e6)"
    await node.make("one", program, env=[*POD_IP, {"name": "TWICE", "value": "$(IP) $(IP) $$(IP) $(NO)"}])
    pod = await node.running("one")
    assert pod["spec"]["nodeName"] == "local"
    assert pod["status"]["podIP"].startswith(f"{node.subnet}.")
    assert {kind: c["status"] for kind, c in conditions(pod).items()} == dict.fromkeys(
        ("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True"
    )

    async def printed() -> str:
        return node.log(pod)

    await until(printed)
    env = json.loads(node.log(pod))
    ip = pod["status"]["podIP"]
    assert env["TWICE"] == f"{ip} {ip} $(IP) $(NO)"
    assert env["KVROLL_LISTEN_HOST"] == ip
    assert env["PATH"] == os.environ["PATH"]
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "SECRET_OF_MY_SHELL" not in env


async def test_two_pods_listen_at_the_same_port(node: Node) -> None:
    ports = [{"name": "http", "containerPort": 7070}]
    ready = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}
    for name in ("a", "b"):
        await node.make(name, SERVER, env=POD_IP, ports=ports, readinessProbe=ready)

    async def both_ready() -> bool:
        return all([conditions(await node.running(name))["Ready"]["status"] == "True" for name in ("a", "b")])

    await until(both_ready)
    assert (await node.pod("a"))["status"]["podIP"] != (await node.pod("b"))["status"]["podIP"]


async def test_what_ends_is_started_again_with_its_exit_code_kept_and_then_waits(node: Node) -> None:
    await node.make("fails", "print('no good'); raise SystemExit(3)", terminationMessagePolicy="FallbackToLogsOnError")

    async def backing_off() -> bool:
        statuses = (await node.pod("fails")).get("status", {}).get("containerStatuses", [])
        return bool(statuses) and statuses[0]["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"

    await until(backing_off)
    found = await node.container("fails")
    assert found["restartCount"] >= 1
    ended = found["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "no good")
    assert node.log(await node.pod("fails"), "main.previous.log") == "no good\n"


async def test_a_pod_that_is_never_restarted_ends_and_gives_back_what_it_held(node: Node) -> None:
    big = {"requests": {"memory": "3Gi"}}
    await node.make("once", "pass", resources=big, spec={"restartPolicy": "Never"})
    await node.make("next", resources=big)

    async def succeeded() -> bool:
        return bool((await node.pod("once"))["status"]["phase"] == "Succeeded")

    await until(succeeded)
    await node.running("next")


async def test_a_grace_that_is_not_used_ends_in_a_kill(node: Node) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(1e6)"
    await node.make("deaf", stubborn, spec={"terminationGracePeriodSeconds": 1})
    pod = await node.running("deaf")

    async def is_deaf() -> str:
        return node.log(pod)

    await until(is_deaf)
    pid = await node.pid("deaf")
    await node.delete("deaf")
    await until(lambda: node.gone("deaf"))
    assert not is_alive(pid)

    async def nothing_is_left() -> bool:
        return not (node.state / "pods" / pod["metadata"]["uid"] / "main.log").exists()

    await until(nothing_is_left)  # the object goes first, its files after it


async def test_a_forced_delete_kills_although_the_object_is_gone_already(node: Node) -> None:
    await node.make("forced", spec={"terminationGracePeriodSeconds": 600})
    await node.running("forced")
    pid = await node.pid("forced")
    await node.delete("forced", grace_seconds=0)

    async def dead() -> bool:
        return not is_alive(pid)

    await until(dead)


async def test_what_a_container_leaves_behind_goes_with_it(node: Node) -> None:
    program = "import subprocess, time; print(subprocess.Popen(['sleep', '1000000']).pid); time.sleep(1e6)"
    await node.make("parent", program)
    pod = await node.running("parent")

    async def printed() -> str:
        return node.log(pod)

    await until(printed)
    child = int(node.log(pod))
    os.kill(await node.pid("parent"), signal.SIGKILL)

    async def dead() -> bool:
        return not is_alive(child)

    await until(dead)


async def test_devices_are_handed_out_once_and_what_does_not_fit_waits_with_the_reason(node: Node) -> None:
    one = {"limits": {"nvidia.com/gpu": 1}}
    program = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(1e6)"
    for name in ("a", "b", "c"):
        await node.make(name, program, resources=one)

    async def waits() -> bool:
        found = (await node.pod("c"))["status"].get("conditions", [])
        return any(c["reason"] == "Unschedulable" for c in found if c["type"] == "PodScheduled")

    await until(waits)
    waiting = await node.pod("c")
    assert waiting["status"]["phase"] == "Pending"
    assert "nodeName" not in waiting["spec"]
    assert "1 Insufficient nvidia.com/gpu" in conditions(waiting)["PodScheduled"]["message"]
    first, second = await node.running("a"), await node.running("b")

    async def both_printed() -> bool:
        return bool(node.log(first) and node.log(second))

    await until(both_printed)
    assert {node.log(first).strip(), node.log(second).strip()} == {"0", "1"}
    given_back = node.log(first)
    await node.delete("a")
    third = await node.running("c")

    async def printed() -> str:
        return node.log(third)

    await until(printed)
    assert node.log(third) == given_back


async def test_what_cannot_be_a_process_is_named(node: Node) -> None:
    await node.make("mounts", spec={"volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"zone": "a"}})

    async def said() -> bool:
        return "conditions" in (await node.pod("mounts"))["status"]

    await until(said)
    message = conditions(await node.pod("mounts"))["PodScheduled"]["message"]
    assert "volumes: there are no mounts" in message
    assert "nodeSelector: there is one node" in message


async def test_a_pod_that_nobody_can_read_stops_no_other(node: Node) -> None:
    await node.make("broken", resources={"requests": {"cpu": "a lot"}})
    await node.make("fine")
    await node.running("fine")

    async def said() -> bool:
        return "conditions" in (await node.pod("broken"))["status"]

    await until(said)
    assert "expected a PodSpec" in conditions(await node.pod("broken"))["PodScheduled"]["message"]


async def test_a_liveness_probe_that_fails_restarts_the_container(node: Node) -> None:
    probe = {"tcpSocket": {"port": 7070}, "periodSeconds": 1, "failureThreshold": 1}
    await node.make("unwell", livenessProbe=probe)

    async def restarted() -> bool:
        statuses = (await node.pod("unwell")).get("status", {}).get("containerStatuses", [])
        return bool(statuses) and statuses[0]["restartCount"] >= 1

    await until(restarted)
    assert (await node.container("unwell"))["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGTERM


async def test_a_taken_port_is_said_and_not_shared(node: Node) -> None:
    ports = [{"name": "http", "containerPort": 7070, "hostIP": "127.0.0.1"}]
    program = "import os, socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]); time.sleep(1e6)"
    await node.make("owner", program)
    pod = await node.running("owner")

    async def printed() -> str:
        return node.log(pod)

    await until(printed)
    await node.make("second", ports=[{**ports[0], "containerPort": int(node.log(pod))}])

    async def said() -> bool:
        statuses = (await node.pod("second")).get("status", {}).get("containerStatuses", [])
        return bool(statuses) and statuses[0]["state"].get("waiting", {}).get("reason") == "CreateContainerError"

    await until(said)
    assert "Address already in use" in (await node.container("second"))["state"]["waiting"]["message"]


# --- an agent's death ----------------------------------------------------------------------------------------------------


async def test_processes_outlive_the_agent_and_the_next_one_adopts_them_ready(node: Node) -> None:
    ready = {"httpGet": {"path": "/", "port": 7070}, "periodSeconds": 1}
    await node.make("stays", SERVER, env=POD_IP, readinessProbe=ready)

    async def is_ready() -> bool:
        return bool(conditions(await node.running("stays"))["Ready"]["status"] == "True")

    await until(is_ready)
    before = await node.pod("stays")
    await node.die()
    await node.begin()
    after = await node.pod("stays")
    assert after["status"] == before["status"]  # the same process, still ready, nothing flapped
    os.kill(await node.pid("stays"), signal.SIGKILL)

    async def restarted() -> bool:
        return bool((await node.container("stays"))["restartCount"] == 1)

    await until(restarted)
    ended = (await node.container("stays"))["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")


async def test_what_died_meanwhile_is_said_before_anything_is_believed(node: Node) -> None:
    await node.make("dies")
    await node.running("dies")
    pid = await node.pid("dies")
    await node.die()
    os.kill(pid, signal.SIGKILL)

    async def dead() -> bool:
        return not is_alive(pid)

    await until(dead)
    assert conditions(await node.pod("dies"))["Ready"]["status"] == "True"  # nobody was there to say otherwise
    seen = []
    patch = node.client.patch

    async def recorded(path: str, body: dict[str, Any]) -> dict[str, Any]:
        seen.append((path, body))
        return await patch(path, body)

    node.client.patch = recorded  # type: ignore[method-assign]
    await node.begin()
    assert seen[0][0] == f"{PODS}/dies/status"
    first = seen[0][1]["status"]
    assert {c["type"]: c["status"] for c in first["conditions"]}["Ready"] == "False"
    assert "ContainerStatusUnknown" in json.dumps(first)


async def test_a_lost_record_is_made_up_for_by_the_mark_of_the_process(node: Node) -> None:
    await node.make("marked")
    pod = await node.running("marked")
    pid = await node.pid("marked")
    await node.die()
    (node.state / "pods" / pod["metadata"]["uid"] / "main.json").unlink()
    await node.begin()
    await node.running("marked")
    assert await node.pid("marked") == pid


async def test_processes_of_a_pod_that_went_meanwhile_are_ended(node: Node) -> None:
    await node.make("orphan")
    await node.running("orphan")
    pid = await node.pid("orphan")
    await node.die()
    await node.delete("orphan", grace_seconds=0)
    assert is_alive(pid)
    await node.begin()

    async def dead() -> bool:
        return not is_alive(pid)

    await until(dead)
    with pytest.raises(NodeApiError, match="404"):
        await node.pod("orphan")


async def test_a_delete_that_nobody_saw_is_finished(node: Node) -> None:
    await node.make("leaving")
    await node.running("leaving")
    pid = await node.pid("leaving")
    await node.die()
    await node.delete("leaving")
    await node.begin()
    await until(lambda: node.gone("leaving"))
    assert not is_alive(pid)
