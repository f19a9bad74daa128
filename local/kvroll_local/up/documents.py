"""The objects that `kvroll up` is given: read, and refused by name where one machine without Kubernetes cannot do what they ask."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import yaml

from kvroll_local.node.podspec import unsupported
from kvroll_local.up.errors import UpError

Json = dict[str, Any]
POOL, CONFIG_MAP = "InferencePool", "ConfigMap"
_API_VERSIONS = {POOL: "kvroll.dev/v1alpha1", CONFIG_MAP: "v1"}
_SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> list[Json]:
    """The objects of a YAML file.

    Raises:
        UpError: it cannot be read, or holds something else than pools and ConfigMaps.
    """
    try:
        documents = [found for found in yaml.load_all(path.read_text(), _SAFE_LOADER) if found is not None]
    except OSError as error:
        raise UpError(f"--file: {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UpError(f"--file: {path} is no YAML: {error}") from error
    for found in documents:
        kind = found.get("kind") if isinstance(found, dict) else type(found).__name__
        version = found.get("apiVersion") if isinstance(found, dict) else None
        if version is None or _API_VERSIONS.get(str(kind)) != version:
            wanted = " or ".join(f"{name} ({group})" for name, group in _API_VERSIONS.items())
            raise UpError(f"--file: expected objects of kind {wanted}, found {kind} ({version}) in {path}")
        if not _part(found, "metadata").get("name"):
            raise UpError(f"--file: expected metadata.name of every object, found a {kind} without one in {path}")
    if not any(found["kind"] == POOL for found in documents):
        raise UpError(f"--file: expected an {POOL}, found none in {path}")
    return documents


def of_model(folder: Path, replicas: int, weights: str, kv_cache: str) -> Json:
    """A pool of a model folder, named for it."""
    name = folder.resolve().name
    return {
        "apiVersion": _API_VERSIONS[POOL], "kind": POOL, "metadata": {"name": "pool"},
        "spec": {
            "replicas": replicas, "model": {"name": name, "uri": folder.resolve().as_uri()},
            "precision": {"weights": weights, "kvCache": kv_cache},
        },
    }  # fmt: skip


def namespace(documents: Sequence[Json], default: str) -> str:
    """The one namespace of all of them.

    Raises:
        UpError: there are several: the operator looks after one.
    """
    found = {str(d["metadata"]["namespace"]) for d in documents if d["metadata"].get("namespace")}
    if len(found) > 1:
        raise UpError(f"expected one namespace, found {', '.join(sorted(found))}: `kvroll up` runs the operator of one")
    return found.pop() if found else default


def check(documents: Sequence[Json]) -> None:
    """Refuses what cannot be done here, all of it at once.

    Raises:
        UpError: with every reason.
    """
    problems = [
        f"{d['metadata']['name']}: {problem}"
        for d in documents
        if d["kind"] == POOL
        for problem in refusals(d.get("spec") or {})
    ]
    if problems:
        raise UpError(
            "one machine without Kubernetes cannot run this pool (a cluster can, with the same file):\n  "
            + "\n  ".join(problems)
        )


def refusals(spec: Json) -> list[str]:
    """What of a pool's spec is refused, by the path of the field. What no API server would take is left to the API server."""
    problems = _model(_part(spec, "model").get("uri"))
    if _part(spec, "engine").get("image"):
        problems.append("spec.engine.image: no image is run here, every worker runs this installation; leave it out")
    if _part(spec, "gate").get("source") == "Job":
        problems.append("spec.gate.source: Job needs images and a cluster; use Builtin, HTTP or Prometheus")
    template = _part(_part(spec, "template"), "spec")
    try:
        problems += [f"spec.template.spec.{problem}" for problem in _template(template)]
    except (TypeError, AttributeError, KeyError, ValueError) as error:  # the schema leaves a template open
        problems.append(f"spec.template.spec: expected a PodSpec, found something else: {error!r}")
    return problems


def _template(spec: Json) -> list[str]:
    containers = spec.get("containers", [])
    images = [f"{c.get('name')}.image: no image is run here; leave it out" for c in containers if c.get("image")]
    return unsupported(spec, os.getuid(), own_container="engine") + images


def _part(parent: Json, name: str) -> Json:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _model(uri: Any) -> list[str]:
    if not isinstance(uri, str):
        return []
    parts = urlparse(uri)
    if parts.scheme == "pvc":
        return [f"spec.model.uri: {uri} names a volume claim of a cluster; write file:///folder of this machine"]
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return [f"spec.model.uri: expected file:///folder of this machine, found {uri}"]
    folder = Path(unquote(parts.path))
    if not (folder / "config.json").is_file():
        return [f"spec.model.uri: expected a folder with config.json, found none at {folder}"]
    return []
