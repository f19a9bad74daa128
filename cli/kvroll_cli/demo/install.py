"""kvroll on a cluster, by `helm install` and `kubectl apply` and nothing else."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_cli.demo.kube import CommandError, Kube

ROOT = Path(__file__).resolve().parents[3]
LOCAL_IMAGE = "localhost/kvroll:dev"
MODEL_MOUNT = "/models/smollm2"
MODEL_NAME = "smollm2-135m-instruct"


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
    def find(cls) -> "Site":
        """`KVROLL_IMAGE` and `KVROLL_MODEL_URI` name an image and model of a cluster elsewhere; without them the local cluster is meant."""
        image = os.environ.get("KVROLL_IMAGE")
        if image:
            return cls(image=image, model_uri=os.environ["KVROLL_MODEL_URI"])
        host = json.loads(_tool("kvroll_cluster", "host-mounts", "-o", "json"))
        model = {
            "name": "model",
            "hostPath": {"path": _tool("kvroll_worker.models.smollm2").splitlines()[-1], "type": "Directory"},
        }
        return cls(
            image=LOCAL_IMAGE,
            model_uri=f"file://{MODEL_MOUNT}",
            volumes=(*host["volumes"], model),
            mounts=(*host["volumeMounts"], {"name": "model", "mountPath": MODEL_MOUNT, "readOnly": True}),
            env=({"name": "PATH", "value": f"{Path(sys.executable).parent}:/usr/bin:/bin"},),
        )


def _tool(module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise CommandError(f"`{' '.join(command)}` exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def chart_values(site: Site) -> dict[str, Any]:
    """Helm values for `charts/kvroll` at this site."""
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
            "podAnnotations": {"kvroll.dev/source": source_digest()},
        }
        values["image"]["pullPolicy"] = "Never"
        values |= {"operator": part, "gateway": part}
    return values


def source_digest() -> str:
    """Changes whenever a Python file of the rooms that run in these pods changes."""
    rooms = ("core", "operator", "gateway", "proto")
    files = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    stamps = "".join(f"{path.relative_to(ROOT)} {path.stat().st_mtime_ns} {path.stat().st_size}\n" for path in files)
    return hashlib.sha256(stamps.encode()).hexdigest()[:16]


async def install(kube: Kube, site: Site) -> None:
    """Installs or upgrades both charts and waits until operator and gateway are ready."""
    crds, chart = str(ROOT / "charts/kvroll-crds"), str(ROOT / "charts/kvroll")
    upgrade = ("helm", "upgrade", "--install", "--create-namespace", "--wait", "--timeout", "180s")
    # One release owns the CRDs of a cluster, whatever namespaces kvroll is installed in; it also takes over CRDs that kubectl applied.
    await kube.run(*upgrade, "--take-ownership", "--force-conflicts", "-n", "kvroll-system", "kvroll-crds", crds)
    values = json.dumps(chart_values(site))
    await kube.run(*upgrade, "-n", kube.namespace, "kvroll", chart, "-f", "-", stdin=values)


async def gateway_url(kube: Kube) -> str:
    """The gateway Service's cluster address, which the host of a local cluster reaches; `KVROLL_GATEWAY_URL` names another."""
    given = os.environ.get("KVROLL_GATEWAY_URL")
    if given:
        return given
    services = await kube.get("services", "-l", "app.kubernetes.io/component=gateway")
    if not services.get("items"):
        raise CommandError(f"expected a gateway Service in namespace {kube.namespace}; was the chart installed?")
    spec = services["items"][0]["spec"]
    return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"


def pool(
    name: str,
    site: Site,
    *,
    replicas: int,
    model_name: str = MODEL_NAME,
    weights: str = "bf16",
    kv_cache: str = "bf16",
    kv_memory: str = "192Mi",
    max_model_len: int = 4096,
    **spec: Any,
) -> dict[str, Any]:
    """An InferencePool for this site, its workers spread over the nodes."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"kvroll.dev/pool": name}},
    }
    template: dict[str, Any] = {"topologySpreadConstraints": [spread]}
    if site.is_local:
        engine = {
            "name": "engine",
            "imagePullPolicy": "Never",
            "volumeMounts": list(site.mounts),
            "env": list(site.env),
        }
        template |= {"volumes": list(site.volumes), "containers": [engine]}
    return {
        "apiVersion": "kvroll.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "model": {"name": model_name, "uri": site.model_uri},
            "precision": {"weights": weights, "kvCache": kv_cache},
            # One thread a worker: the workers of a small machine share its cores anyway.
            "engine": {"maxModelLen": max_model_len, "kvMemory": kv_memory, "threads": 1},
            # All sessions of a worker at once: a move waits for step borders, not for bandwidth, on a machine like this.
            "sessions": {"parallel": 8, "perWorker": 8},
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}},
            "template": {"spec": template},
            **spec,
        },
    }
