"""kvroll on a Kubernetes, by `helm install` and `kubectl apply` and nothing else: the local cluster, or that of `KUBECONFIG`."""

import asyncio
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_cli.demo import model
from kvroll_cli.demo.backends.backend import checkout, pool_of
from kvroll_cli.demo.backends.kubectl import Kubectl
from kvroll_cli.demo.backends.objects import BackendError, Object

LOCAL_IMAGE = "localhost/kvroll:dev"
MODEL_MOUNT = "/models/smollm2"


@dataclass(frozen=True)
class Site:
    """How pods get kvroll and the model: an image with everything inside, or this checkout mounted into a small one."""

    image: str
    model_uri: str
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    env: tuple[dict[str, str], ...] = ()

    @property
    def is_local(self) -> bool:
        return self.image == LOCAL_IMAGE

    @classmethod
    async def find(cls, root: Path) -> "Site":
        """`KVROLL_IMAGE` and `KVROLL_MODEL_URI` name an image and model of a cluster elsewhere; without them the local cluster is meant."""
        image, uri = os.environ.get("KVROLL_IMAGE"), os.environ.get("KVROLL_MODEL_URI")
        if image or uri:
            if not (image and uri):
                raise BackendError("expected both KVROLL_IMAGE and KVROLL_MODEL_URI or neither, found one")
            return cls(image=image, model_uri=uri)
        host = json.loads(await _host_mounts(root))
        mounted = {"name": "model", "hostPath": {"path": str(await model.ensure()), "type": "Directory"}}
        return cls(
            image=LOCAL_IMAGE,
            model_uri=f"file://{MODEL_MOUNT}",
            volumes=(*host["volumes"], mounted),
            mounts=(*host["volumeMounts"], {"name": "model", "mountPath": MODEL_MOUNT, "readOnly": True}),
            env=({"name": "PATH", "value": f"{Path(sys.executable).parent}:/usr/bin:/bin"},),
        )


async def _host_mounts(root: Path) -> str:
    command = [sys.executable, "-m", "kvroll_cluster", "host-mounts", "-o", "json"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=pipe, cwd=root, env={**os.environ, "PYTHONPATH": str(root / "cluster")}
    )
    out, err = await process.communicate()
    if process.returncode:
        raise BackendError(f"`{' '.join(command)}` exited with {process.returncode}: {err.decode().strip()}")
    return out.decode()


class KubernetesBackend:
    """The charts of this checkout in one namespace of a cluster. They stay installed, as a user's would: the next run upgrades them."""

    name = "Kubernetes"
    opening = "helm upgrade --install kvroll-crds, kvroll"

    def __init__(self, namespace: str) -> None:
        found = checkout()
        if found is None:
            raise BackendError(
                "expected the charts of a checkout of kvroll for --backend Kubernetes, found an installed package: "
                "run `make demo-cluster` in a checkout"
            )
        self._root = found
        self._site: Site | None = None
        self._kubectl = Kubectl(namespace)

    @property
    def objects(self) -> Kubectl:
        """The objects of its namespace, by commands."""
        return self._kubectl

    @property
    def site(self) -> Site:
        """Where `start` found itself."""
        if self._site is None:
            raise RuntimeError("expected `start` to have been called, found no site")
        return self._site

    async def start(self) -> None:
        await self.objects.run("kubectl", "get", "--raw", "/readyz")
        self._site = await Site.find(self._root)
        crds, chart = str(self._root / "charts/kvroll-crds"), str(self._root / "charts/kvroll")
        upgrade = ("helm", "upgrade", "--install", "--create-namespace", "--wait", "--timeout", "180s")
        # One release owns the CRDs of a cluster, whatever namespaces kvroll is installed in; it also takes over CRDs that kubectl applied.
        await self.objects.run(
            *upgrade, "--take-ownership", "--force-conflicts", "-n", "kvroll-system", "kvroll-crds", crds
        )
        values = json.dumps(self._values())
        await self.objects.run(*upgrade, "-n", self.objects.namespace, "kvroll", chart, "-f", "-", stdin=values)
        await self._delete_pools()  # of an earlier run that was cut short

    async def gateway_url(self) -> str:
        """The gateway Service's cluster address, which the host of a local cluster reaches; `KVROLL_GATEWAY_URL` names another."""
        given = os.environ.get("KVROLL_GATEWAY_URL")
        if given:
            return given
        services = await self.objects.list("services", "app.kubernetes.io/component=gateway")
        if not services:
            raise BackendError(
                f"expected a gateway Service in namespace {self.objects.namespace}; was the chart installed?"
            )
        spec = services[0]["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

    async def facts(self) -> dict[str, Any]:
        version = json.loads(await self.objects.run("kubectl", "version", "-o", "json"))
        nodes = await self.objects.list("nodes")
        return {
            "kubernetes_version": version["serverVersion"]["gitVersion"],
            "nodes": [node["metadata"]["name"] for node in nodes],
        }

    def pool(self, name: str, **wanted: Any) -> Object:
        """Its workers are spread over the nodes."""
        made = pool_of(name, self.site.model_uri, **wanted)
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"kvroll.dev/pool": name}},
        }
        template: dict[str, Any] = {"topologySpreadConstraints": [spread]}
        if self.site.is_local:
            engine = {
                "name": "engine",
                "imagePullPolicy": "Never",
                "volumeMounts": list(self.site.mounts),
                "env": list(self.site.env),
            }
            template |= {"volumes": list(self.site.volumes), "containers": [engine]}
        made["spec"]["template"] = {"spec": template}
        return made

    async def stop(self) -> None:
        await self._delete_pools()

    async def _delete_pools(self) -> None:
        await self.objects.kubectl("delete", "kvpool", "--all", "--timeout=120s")

    def _values(self) -> dict[str, Any]:
        site = self.site
        repository, _, tag = site.image.rpartition(":")
        values: dict[str, Any] = {"image": {"repository": repository, "tag": tag}, "workerImage": site.image}
        if site.is_local:
            # The checkout and its interpreter belong to the user who built them: pods on this machine run as that user.
            part = {
                "extraVolumes": [v for v in site.volumes if v["name"] != "model"],
                "extraVolumeMounts": [m for m in site.mounts if m["name"] != "model"],
                "extraEnv": list(site.env),
                "podSecurityContext": {"runAsNonRoot": False, "runAsUser": os.getuid()},
                # The image never changes, the checkout in it does: pods must restart to run it.
                "podAnnotations": {"kvroll.dev/source": source_digest(self._root)},
            }
            values["image"]["pullPolicy"] = "Never"
            values |= {"operator": part, "gateway": part}
        return values


def source_digest(root: Path) -> str:
    """Changes whenever a Python file of the rooms that run in these pods changes."""
    rooms = ("core", "operator", "gateway", "proto")
    files = sorted(path for room in rooms for path in (root / room).rglob("*.py"))
    stamps = "".join(f"{path.relative_to(root)} {path.stat().st_mtime_ns} {path.stat().st_size}\n" for path in files)
    return hashlib.sha256(stamps.encode()).hexdigest()[:16]
