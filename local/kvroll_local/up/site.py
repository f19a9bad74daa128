"""A site: the embedded API server and the node agent in this process, everything else as processes that outlive it."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvroll_local.api.access import Access
from kvroll_local.api.objects.refused import Refused
from kvroll_local.api.server import ApiServer
from kvroll_local.node.addresses import server_address, subnets
from kvroll_local.node.agent import Agent
from kvroll_local.node.client import UNREACHABLE, Client, NodeApiError
from kvroll_local.node.machine import listener_problem, measured
from kvroll_local.node.schedule import NodeRoom
from kvroll_local.up import documents as given
from kvroll_local.up import parts
from kvroll_local.up.errors import UpError
from kvroll_local.up.folder import SiteRecord, StateFolder

Json = dict[str, Any]
API_PORT, DEFAULT_GATEWAY_PORT = 6443, 8000
MANAGER = "kvroll-up"
_WORKER_PORTS = (7070, 7071)
_END_SECONDS = 5.0
_RETRY_SECONDS = 0.3
_API = "/apis/kvroll.dev/v1alpha1"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SiteOptions:
    """`crds` are CustomResourceDefinition objects; `documents` what to apply at the start. Gateway port None: the one of before, or 8000;
    0: a free one. `drain_seconds` is how long the end waits for open streams, `datasets` the folder whose files a gate may read.
    """

    state: Path
    crds: Sequence[Json]
    documents: Sequence[Json] = ()
    namespace: str = "default"
    gateway_host: str = "127.0.0.1"
    gateway_port: int | None = None
    drain_seconds: float = 5.0
    datasets: Path | None = None
    machine: NodeRoom = field(default_factory=measured)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    python: str = sys.executable


class LocalSite:
    """`await start()`, then `kubeconfig` and `gateway_url` hold; `await stop()` ends every process of it.

    If this process dies without `stop`, operator, gateway and workers go on, and the next `start` over the same folder takes them up.
    """

    def __init__(self, options: SiteOptions) -> None:
        self.options = options
        self.folder = StateFolder(options.state)
        self.kubeconfig = self.folder.kubeconfig
        self._record: SiteRecord | None = None
        self._server: ApiServer | None = None
        self._client: Client | None = None
        self._agent: Agent | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def gateway_url(self) -> str:
        """The root of the OpenAI API is `/v1` below it."""
        return self._known.gateway_url

    @property
    def namespace(self) -> str:
        """Where the pools are."""
        return self._known.namespace

    @property
    def client(self) -> Client:
        """A client of its API server."""
        if self._client is None:
            raise RuntimeError("the site has not started")
        return self._client

    async def start(self) -> None:
        """Takes up what the folder holds and begins what is missing; returns when operator and gateway are being run.

        Raises:
            UpError: the folder is another's, an address is taken, or a document is refused. Nothing that was not there before is left.
        """
        given.check(self.options.documents)
        self.folder.acquire()
        is_new = self.folder.record() is None
        try:
            await self._start()
        except BaseException as error:
            await self._let_go()
            if is_new:
                self.folder.clear()
            self.folder.release()
            if isinstance(error, Refused | NodeApiError | OSError):
                raise UpError(str(error)) from error
            raise

    async def stop(self, keep_state: bool = False, within_seconds: float = _END_SECONDS) -> None:
        """Ends every process: the gateway first, so that open streams have `drain_seconds`; workers have `within_seconds` to go.
        Forgets the objects, unless told otherwise here or by `kvroll down --keep-state`.
        """
        keep = keep_state or self.folder.keeps_state
        self.folder.ask_to_keep(False)
        if self._agent is not None:
            for task in self._tasks[1:]:
                task.cancel()
            # Workers last: what the gateway lets end still streams from them.
            await self._agent.end(min(self.options.drain_seconds, within_seconds) + 1, parts.NAMESPACE)
            await self._agent.end(within_seconds)
        await self._let_go()
        if not keep:
            self.folder.clear()
        self.folder.release()

    async def pools(self) -> list[Json]:
        """The InferencePools as they are now."""
        found: list[Json] = (await self.client.get(f"{_API}/namespaces/{self.namespace}/kvpools"))["items"]
        return found

    async def hurry(self) -> None:
        """Kills what `stop` still waits for."""
        if self._agent is not None:
            await self._agent.end(0.0)

    async def serves(self, pool: Json) -> bool:
        """Whether the gateway takes requests for the pool's model."""
        if self._agent is None or not self._agent.is_ready(parts.NAMESPACE, parts.GATEWAY):
            return False
        try:
            async with Client(self.gateway_url, "") as gateway:
                found = await gateway.get("/v1/models")
        except UNREACHABLE:
            return False
        return any(model["id"] == pool["spec"]["model"]["name"] for model in found["data"])

    async def workers(self, pool: str) -> list[Json]:
        """The Pods of a pool as they are now."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=kvroll.dev/pool={pool}"
        found: list[Json] = (await self.client.get(path))["items"]
        return found

    @property
    def _known(self) -> SiteRecord:
        record = self._record or self.folder.record()
        if record is None:
            raise RuntimeError("the site has not started")
        return record

    # --- start, in order -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        options, folder = self.options, self.folder
        _log_to(folder.log)
        record = folder.record() or self._new_record()
        record = self._in_namespace(record)
        access = Access.load(folder.path, server_address(record.subnet))
        self._server = ApiServer(folder.path, options.crds, access, server_address(record.subnet), API_PORT)
        await self._server.start()
        access.write_kubeconfig(folder.kubeconfig, self._server.url, record.namespace)
        tls = ssl.create_default_context(cafile=str(access.certificate))
        self._client = Client(self._server.url, access.token, tls)
        self._agent = Agent(self._client, folder.path, record.subnet, options.machine, options.environ, options.python)
        self._tasks = [asyncio.create_task(self._agent.run(), name="agent")]
        await self._agent.settled()
        record = self._with_gateway(record)
        folder.remember(record)
        self._record = record
        await self._apply(record)
        self._tasks.append(asyncio.create_task(self._hold_parts(record), name="parts"))

    def _new_record(self) -> SiteRecord:
        """A /24 of loopback that nobody uses."""
        for subnet in subnets(str(self.folder.path)):
            host = server_address(subnet)
            problem = listener_problem(host, API_PORT)
            if not problem:
                self._check_worker_ports(subnet)
                return SiteRecord(
                    subnet, self.options.namespace, self.options.gateway_host, 0, str(self.options.datasets or "")
                )
            if "no address of this machine" in problem:
                raise UpError(
                    f"expected a machine that answers at every address of 127.0.0.0/8, as Linux does, found that {problem};"
                    f" {sys.platform} needs an alias made by root for each worker, which `kvroll up` does not do: use Linux, or a cluster"
                )
        raise UpError(f"expected a free /24 of 127.0.0.0/8, found port {API_PORT} taken in all of them")

    def _check_worker_ports(self, subnet: str) -> None:
        """Whoever listens at 0.0.0.0:7070 listens at every worker's address."""
        for port in _WORKER_PORTS:
            if problem := listener_problem(f"{subnet}.10", port):
                raise UpError(
                    f"expected port {port} to be free at the addresses of workers, found {problem}: end what listens at 0.0.0.0:{port}"
                )

    def _in_namespace(self, record: SiteRecord) -> SiteRecord:
        wanted = given.namespace(self.options.documents, record.namespace)
        if self.folder.record() is not None and wanted != record.namespace:
            raise UpError(
                f"expected objects in the namespace {record.namespace}, which the operator of {self.folder.path} looks after,"
                f" found {wanted}; choose another --state"
            )
        datasets = str(self.options.datasets or record.datasets)
        return replace(record, namespace=wanted, datasets=datasets)

    def _with_gateway(self, record: SiteRecord) -> SiteRecord:
        """The gateway's address: as asked, or as before where nothing is asked."""
        host, asked = self.options.gateway_host, self.options.gateway_port
        port = record.gateway_port or DEFAULT_GATEWAY_PORT if asked is None else asked
        if host == record.gateway_host and port in (0, record.gateway_port) and self._runs(parts.GATEWAY):
            return record
        if port == 0:
            with contextlib.closing(socket.create_server((host, 0))) as free:
                port = free.getsockname()[1]
        elif problem := listener_problem(host, port):
            raise UpError(f"the gateway cannot listen: {problem}; choose another --port")
        return replace(record, gateway_host=host, gateway_port=port)

    def _runs(self, name: str) -> bool:
        return self._agent is not None and self._agent.is_running(parts.NAMESPACE, name)

    async def _apply(self, record: SiteRecord) -> None:
        for namespace in (parts.NAMESPACE, record.namespace):
            body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await self._create("/api/v1/namespaces", body)
        for document in sorted(self.options.documents, key=lambda d: d["kind"] == given.POOL):
            where = f"{_API}/namespaces/{record.namespace}/kvpools"
            if document["kind"] == given.CONFIG_MAP:
                where = f"/api/v1/namespaces/{record.namespace}/configmaps"
            await self.client.apply(f"{where}/{document['metadata']['name']}", document, MANAGER)

    async def _create(self, path: str, body: Json) -> None:
        try:
            await self.client.create(path, body)
        except NodeApiError as error:
            if error.status != 409:
                raise

    # --- operator and gateway ------------------------------------------------------------------------------------------

    async def _hold_parts(self, record: SiteRecord) -> None:
        """Makes them where they are missing or differ, for as long as the site lives."""
        key = self.folder.path / "session.key"
        if not key.exists():
            self.folder.write_private("session.key", os.urandom(32).hex().encode())
        options = parts.PartOptions(self.kubeconfig, key, self.options.drain_seconds)
        wanted = {pod["metadata"]["name"]: pod for pod in parts.pods(record, options)}
        path = f"/api/v1/namespaces/{parts.NAMESPACE}/pods"
        while True:
            try:
                listed = await self.client.get(path)
                found = {pod["metadata"]["name"]: pod for pod in listed["items"]}
                for name, pod in wanted.items():
                    if name not in found:
                        await self._create(path, pod)
                    elif not parts.is_same(pod, found[name]) and "deletionTimestamp" not in found[name]["metadata"]:
                        await self.client.delete(f"{path}/{name}", uid=found[name]["metadata"]["uid"])
                async for kind, _ in self.client.watch(path, listed["metadata"]["resourceVersion"]):
                    if kind in ("DELETED", "ERROR"):
                        break
            except UNREACHABLE as error:
                log.warning("operator and gateway: %r", error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _let_go(self) -> None:
        """Ends what lives in this process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._client is not None:
            await self._client.close()
        if self._server is not None:
            await self._server.stop()
        self._client = self._server = self._agent = None


def _log_to(path: Path) -> None:
    """What the server and the agent have to say goes to a file: the terminal is for people."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("kvroll_local")
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.propagate = False
