"""What of a Pod's spec this agent can do, by name, and what a container's process is given."""

import re
from collections.abc import Mapping
from typing import Any

from kvroll_local.node.probe import KINDS, ProbeError, parse

Json = Mapping[str, Any]

_REFUSED_OF_PODS = {
    "volumes": "there are no mounts: name files by their path on this machine",
    "initContainers": "only plain containers are started",
    "ephemeralContainers": "only plain containers are started",
    "nodeSelector": "there is one node",
    "affinity": "there is one node",
    "topologySpreadConstraints": "there is one node",
    "resourceClaims": "devices are asked for as nvidia.com/gpu",
}
_REFUSED_OF_CONTAINERS = {
    "volumeMounts": "there are no mounts",
    "volumeDevices": "there are no mounts",
    "envFrom": "name each variable in env",
    "lifecycle": "there are no hooks",
}
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "status.podIP",
    "status.podIPs",
    "status.hostIP",
)
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def unsupported(spec: Json, uid: int, own_container: str = "") -> list[str]:
    """Every part of a Pod's spec that a process of user `uid` on one machine cannot be, with the reason.

    `own_container` need not say its command: somebody will merge it in.
    """
    found = [f"{name}: {why}" for name, why in _REFUSED_OF_PODS.items() if spec.get(name)]
    found += _user(spec.get("securityContext"), uid)
    for container in spec.get("containers", []):
        name = container.get("name", "?")
        found += [f"{name}.{part}: {why}" for part, why in _REFUSED_OF_CONTAINERS.items() if container.get(part)]
        found += [f"{name}.{problem}" for problem in _user(container.get("securityContext"), uid)]
        if not container.get("command") and name != own_container:
            found.append(f"{name}: no image is run here, so expected a command, found none")
        found += [f"{name}.env: {problem}" for problem in _variables(container.get("env", []))]
        for kind in KINDS:
            try:
                parse(kind, {"ports": [], **container}, "127.0.0.1")
            except ProbeError as error:
                found.append(str(error))
    return found


def _user(context: Json | None, uid: int) -> list[str]:
    wanted = (context or {}).get("runAsUser")
    return [f"securityContext.runAsUser: processes run as {uid}, not as {wanted}"] if wanted not in (None, uid) else []


def _variables(env: list[Json]) -> list[str]:
    problems = []
    for variable in env:
        source = variable.get("valueFrom")
        if source is None:
            continue
        path = source.get("fieldRef", {}).get("fieldPath", "")
        if path not in _FIELDS and not _KEYED.fullmatch(path):
            problems.append(f"{variable['name']}: expected a value or a fieldRef, found {path or ', '.join(source)}")
    return problems


def variables(container: Json, pod: Json, fields: Mapping[str, str]) -> dict[str, str]:
    """The container's own variables, references to earlier ones resolved. `fields` are the fieldPaths that a Pod's metadata lacks."""
    metadata = pod["metadata"]
    known = {f"metadata.{name}": str(metadata.get(name, "")) for name in ("name", "namespace", "uid")} | dict(fields)
    env: dict[str, str] = {}
    for variable in container.get("env", []):
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        keyed = _KEYED.fullmatch(path or "")
        if keyed:
            env[variable["name"]] = str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
        else:
            env[variable["name"]] = known.get(path, "") if path else expand(variable.get("value", ""), env)
    return env


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` replaced where it is known, left alone otherwise; `$$` is one dollar."""
    return re.sub(
        r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text
    )


def command(container: Json, env: Mapping[str, str], python: str) -> list[str]:
    """The command line; `python` stands for the interpreter that runs us, as an image's would for the one in it."""
    words = [expand(word, env) for word in [*container.get("command", []), *container.get("args", [])]]
    return [python, *words[1:]] if words and words[0] in ("python", "python3") else words
