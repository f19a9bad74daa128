"""The node agent: follows the Pods of one API server, gives each a place on this machine, and runs it there."""

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvroll_core.quantity import QuantityError, whole
from kvroll_local.node import logs, status
from kvroll_local.node.addresses import allocate
from kvroll_local.node.client import UNREACHABLE, Client, NodeApiError
from kvroll_local.node.container import now
from kvroll_local.node.environment import CONTAINER_MARK, STATE_MARK
from kvroll_local.node.identity import marked
from kvroll_local.node.pod import Place, PodRun, Surroundings
from kvroll_local.node.podspec import unsupported
from kvroll_local.node.schedule import Grant, NodeRoom, expected_workers, place, request, threads_each

Json = dict[str, Any]
_POOLS = "/apis/kvroll.dev/v1alpha1/kvpools"
_RETRY_SECONDS = 0.3
_ROTATE_SECONDS = 30.0
log = logging.getLogger(__name__)


class Agent:
    """Its processes outlive it: the next agent of the same folder adopts them. One at a time; whoever starts it holds the folder's lock."""

    def __init__(
        self, client: Client, state: Path, subnet: str, machine: NodeRoom, environ: Mapping[str, str], python: str
    ) -> None:
        self.machine = machine
        self._client, self._state, self._subnet = client, state, subnet
        self._around = Surroundings(client, state, environ, python)
        self._runs: dict[str, PodRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pending: dict[str, Json] = {}
        self._said: dict[str, Json] = {}  # status that was written of a pending Pod
        self._last_address = ""
        self._settled, self._work = asyncio.Event(), asyncio.Event()

    # --- for whoever runs it ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follows the server until cancelled; processes stay."""
        parts = [asyncio.create_task(part) for part in (self._follow(), self._schedule(), self._rotate())]
        try:
            await asyncio.gather(*parts)
        finally:
            for task in (*parts, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(*parts, *self._tasks.values(), return_exceptions=True)

    async def settled(self) -> None:
        """Returns when every Pod that was there at the start says in its status what is true now."""
        await self._settled.wait()

    async def end(self, within_seconds: float, namespace: str = "", name: str = "") -> None:
        """Ends the processes of all Pods, or of those of a namespace or of one; the objects stay as they are."""
        chosen = self._named(namespace, name)
        for run in chosen:
            run.end(within_seconds)
        await asyncio.gather(
            *(self._tasks[run.uid] for run in chosen if run.uid in self._tasks), return_exceptions=True
        )

    def is_running(self, namespace: str, name: str) -> bool:
        """Whether a process of that Pod lives."""
        return any(run.is_running for run in self._named(namespace, name))

    def is_ready(self, namespace: str, name: str) -> bool:
        """Whether that Pod's containers are all ready."""
        return any(run.is_ready for run in self._named(namespace, name))

    def _named(self, namespace: str, name: str) -> list[PodRun]:
        runs = self._runs.values()
        return [
            run
            for run in runs
            if namespace in ("", run.pod["metadata"]["namespace"]) and name in ("", run.pod["metadata"]["name"])
        ]

    # --- the server's Pods -----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        said = ""
        while True:
            try:
                listed = await self._client.get("/api/v1/pods")
                await self._listed(listed["items"])
                said = ""
                async for kind, pod in self._client.watch("/api/v1/pods", listed["metadata"]["resourceVersion"]):
                    if kind == "ERROR":
                        break
                    if kind == "DELETED":
                        self._deleted(pod["metadata"]["uid"])
                    elif kind != "BOOKMARK":
                        self._seen(pod)
            except UNREACHABLE as error:
                if repr(error) != said:
                    said = repr(error)
                    log.warning("following Pods: %s; trying again", said)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _listed(self, pods: list[Json]) -> None:
        """Everything that is there now. The first time it decides what of before is still alive."""
        present = {pod["metadata"]["uid"] for pod in pods}
        if not self._settled.is_set():
            await self._take_over(pods, present)
        for uid in [*self._runs, *self._pending]:
            if uid not in present:
                self._deleted(uid)
        for pod in pods:
            self._seen(pod)
        self._settled.set()

    async def _take_over(self, pods: list[Json], present: set[str]) -> None:
        """Adopts what runs, says of the rest that it ended, and ends what no Pod stands for any more."""
        strays = self._strays()
        for mark, pid in strays.items():
            if mark.partition("/")[0] not in present:
                log.warning("pid %d carries the mark of the Pod %s, which is gone: killed", pid, mark)
                with suppress(ProcessLookupError):
                    os.killpg(pid, 9)
        for pod in pods:
            uid = pod["metadata"]["uid"]
            kept = Place.kept(self._folder(uid))
            if pod["spec"].get("nodeName") == status.NODE and kept is not None and uid not in self._runs:
                try:
                    self._hold(pod, kept, strays)
                except Exception:  # it ran once, so its spec was readable: whatever this is stops this Pod alone
                    log.exception("taking up %s", pod["metadata"]["name"])
        await asyncio.gather(*(run.report() for run in self._runs.values()))
        for uid in list(self._runs):
            self._start(uid)
        for folder in (self._state / "pods").glob("*"):
            if folder.name not in present:
                shutil.rmtree(folder, ignore_errors=True)

    def _strays(self) -> dict[str, int]:
        """Main processes of our containers, by mark."""
        found = {}
        for pid, env in marked(STATE_MARK, str(self._state)):
            with suppress(ProcessLookupError):
                if os.getsid(pid) == pid and CONTAINER_MARK in env:
                    found[env[CONTAINER_MARK]] = pid
        return found

    def _seen(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._runs:
            self._runs[uid].update(pod)
        elif uid not in self._tasks and _is_ours_to_run(pod):
            self._pending[uid] = pod
            self._work.set()

    def _deleted(self, uid: str) -> None:
        self._pending.pop(uid, None)
        self._said.pop(uid, None)
        if uid in self._runs:
            self._runs[uid].lose()
        else:
            self._tasks.pop(uid, None)  # a Pod that ended is remembered until here: its own last events come back
            shutil.rmtree(self._folder(uid), ignore_errors=True)
        self._work.set()

    # --- places ------------------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Gives pending Pods a place, the oldest first, whenever something changed."""
        while True:
            await self._work.wait()
            self._work.clear()
            waiting = sorted(
                self._pending.values(), key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"])
            )
            for pod in waiting:
                try:
                    await self._try(pod)
                except UNREACHABLE as error:
                    log.warning("placing %s: %r", pod["metadata"]["name"], error)
                    asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._work.set)
                except Exception:  # one Pod that nobody can read stops that Pod alone
                    log.exception("placing %s", pod["metadata"]["name"])
                    self._pending.pop(pod["metadata"]["uid"], None)

    async def _try(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        found = await self._place(pod)
        if uid not in self._pending:
            return  # deleted meanwhile
        if isinstance(found, str):
            await self._say_why_not(pod, found)
            return
        found.keep(self._folder(uid))
        if "nodeName" not in pod["spec"]:
            meta = pod["metadata"]
            target = {"apiVersion": "v1", "kind": "Node", "name": status.NODE}
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": meta["name"], "uid": uid},
                "target": target,
            }
            try:
                await self._client.create(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", body)
            except NodeApiError as error:
                if error.status in (404, 409):
                    return  # it changed; the watch says how
                raise
        self._last_address = found.address
        if self._pending.pop(uid, None) is not None:
            self._hold({**pod, "spec": {**pod["spec"], "nodeName": status.NODE}}, found, {})
            self._start(uid)

    async def _place(self, pod: Json) -> Place | str:
        """A place, or why there is none."""
        try:
            problems = unsupported(pod["spec"], os.getuid())
            asked = request(pod["spec"])
        except (QuantityError, TypeError, AttributeError, KeyError, ValueError) as error:
            problems = [
                f"expected a PodSpec, found something else: {error if isinstance(error, QuantityError) else repr(error)}"
            ]
        if problems:
            return f"0/1 nodes are available: kvroll's local node cannot run this Pod: {'; '.join(problems)}"
        granted = place(asked, self.machine, self._grants())
        if isinstance(granted, str):
            return granted
        address = allocate(self._subnet, {run.place.address for run in self._runs.values()}, self._last_address)
        if address is None:
            return "0/1 nodes are available: 1 Too many pods."
        return Place(address, granted, await self._threads(pod))

    def _grants(self) -> list[Grant]:
        return [run.place.grant for run in self._runs.values() if not run.is_over]

    async def _threads(self, pod: Json) -> int:
        """As many as its CPU limit allows, else its share of the machine."""
        for container in pod["spec"]["containers"]:
            resources = container.get("resources") or {}
            cpu = (resources.get("limits") or {}).get("cpu") or (resources.get("requests") or {}).get("cpu")
            if cpu is not None:
                return max(1, whole(cpu, 1000) // 1000)
        try:
            pools = (await self._client.get(_POOLS))["items"]
        except NodeApiError:
            pools = []
        return threads_each(self.machine.cpu_millis, expected_workers(pools))

    async def _say_why_not(self, pod: Json, reason: str) -> None:
        uid, meta = pod["metadata"]["uid"], pod["metadata"]
        shown = status.unschedulable(reason, self._said.get(uid) or pod.get("status") or {}, now())
        if self._said.get(uid) != shown:
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
            try:
                await self._client.patch(path, {"metadata": {"uid": uid}, "status": shown})
            except NodeApiError as error:
                if not error.is_gone:
                    raise
            self._said[uid] = shown

    # --- runs --------------------------------------------------------------------------------------------------------------

    def _folder(self, uid: str) -> Path:
        return self._state / "pods" / uid

    def _hold(self, pod: Json, given: Place, strays: Mapping[str, int]) -> None:
        run = PodRun(pod, given, self._around, self._work.set)
        run.adopt(strays)
        self._runs[run.uid] = run

    def _start(self, uid: str) -> None:
        self._tasks[uid] = asyncio.create_task(self._live(self._runs[uid]))

    async def _live(self, run: PodRun) -> None:
        try:
            await run.live()
        except Exception:
            log.exception("the Pod %s", run.path)
            raise
        finally:
            self._runs.pop(run.uid, None)
            if run.is_lost:
                self._deleted(run.uid)
            self._work.set()

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(_ROTATE_SECONDS)
            for uid in self._runs:
                logs.rotate(self._folder(uid))


def _is_ours_to_run(pod: Json) -> bool:
    """Bound to no node or to this one, and not over."""
    is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return pod["spec"].get("nodeName", status.NODE) == status.NODE and not is_over
