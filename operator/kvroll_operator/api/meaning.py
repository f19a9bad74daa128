"""The meaning of a revision's content: what Kubernetes would make of it, however it is spelt.

Two contents of one meaning are one revision. So `1` and `"1000m"` are the same, a default spelt out is no change, and a version of the
operator that writes contents in another way rolls nothing.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kvroll_core.quantity import QuantityError, parse_quantity
from kvroll_core.revision import canonical

Json = dict[str, Any]

_POD_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 120,  # the operator's own
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "hostNetwork": False,
    "hostPID": False,
    "hostIPC": False,
    "shareProcessNamespace": False,
    "automountServiceAccountToken": False,  # the operator's own
    "serviceAccountName": "default",
}
_CONTAINER_DEFAULTS: Json = {
    "terminationMessagePath": "/dev/termination-log",
    "stdin": False,
    "stdinOnce": False,
    "tty": False,
}
_PROBE_DEFAULTS: Json = {
    "initialDelaySeconds": 0,
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_MOUNT_DEFAULTS: Json = {"readOnly": False, "subPath": "", "mountPropagation": "None", "recursiveReadOnly": "Disabled"}
_FILE_SOURCES = ("configMap", "secret", "projected", "downwardAPI")


def is_same(one: str, other: str, *, empties: bool = True) -> bool:
    """Whether two contents (canonical JSON) mean the same. Without `empties`, empty selectors are not told from absent ones, as in contents
    that early versions wrote without them.
    """
    return one == other or meaning(one, empties=empties) == meaning(other, empties=empties)


@lru_cache(maxsize=1024)
def meaning(content: str, *, empties: bool = True) -> str:
    """The normal form of a content, as canonical JSON; not for people, and not stored."""
    found: Json = json.loads(content)
    normal = {**found}
    if isinstance(found.get("resources"), dict):
        normal["resources"] = _resources(found["resources"])
    if isinstance(found.get("engine"), dict) and "kvMemory" in found["engine"]:
        normal["engine"] = {**found["engine"], "kvMemory": _quantity(found["engine"]["kvMemory"])}
    template = found.get("template")
    if isinstance(template, dict):
        normal["template"] = _with(template, {"spec": _pod})
    return canonical(normal, empties=empties)


def _pod(spec: Any) -> Any:
    made = _with(
        spec,
        {
            "containers": _each(_container),
            "initContainers": _each(_container),
            "volumes": _each(_volume),
            "overhead": _quantities,
        },
    )
    return _without(made, _POD_DEFAULTS)


def _container(container: Any) -> Any:
    made = _with(
        container,
        {
            "resources": _resources,
            "ports": _each(lambda port: _without(port, {"protocol": "TCP"})),
            "volumeMounts": _each(lambda mount: _without(mount, _MOUNT_DEFAULTS)),
            "env": _each(_env),
            **dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"), _probe),
        },
    )
    return _without(made, {**_CONTAINER_DEFAULTS, "imagePullPolicy": _pull_policy(container)})


def _pull_policy(container: Any) -> str:
    """The API's default: an image that has no tag, or `latest`, is pulled each time; without an image, ours is not known here."""
    image = str(container.get("image") or "") if isinstance(container, dict) else ""
    if not image:
        return ""
    name = image.rpartition("/")[2]
    is_fixed = "@" in name or (":" in name and not name.endswith(":latest"))
    return "IfNotPresent" if is_fixed else "Always"


def _env(entry: Any) -> Any:
    """An empty value and none are the same; a field is read at v1."""
    source = {"valueFrom": lambda v: _with(v, {"fieldRef": lambda f: _without(f, {"apiVersion": "v1"})})}
    return _without(_with(entry, source), {"value": ""})


def _probe(probe: Any) -> Any:
    scheme = {"httpGet": lambda get: _without(get, {"scheme": "HTTP"})}
    return _without(_with(probe, scheme), _PROBE_DEFAULTS)


def _volume(volume: Any) -> Any:
    if isinstance(volume, dict) and set(volume) <= {"name"}:
        return {**volume, "emptyDir": {}}
    parts: dict[str, Callable[[Any], Any]] = {
        name: lambda source: _without(source, {"defaultMode": 420, "optional": False}) for name in _FILE_SOURCES
    }
    parts["emptyDir"] = lambda source: _without(_with(source, {"sizeLimit": _quantity}), {"medium": ""})
    parts["hostPath"] = lambda source: _without(source, {"type": ""})
    parts["persistentVolumeClaim"] = lambda source: _without(source, {"readOnly": False})
    return _with(volume, parts)


def _resources(resources: Any) -> Any:
    """A request that is not spelt out is the limit."""
    made = _with(resources, {"limits": _quantities, "requests": _quantities})
    if isinstance(made, dict) and isinstance(made.get("limits"), dict):
        made = {**made, "requests": {**made["limits"], **(made.get("requests") or {})}}
    return made


def _quantities(found: Any) -> Any:
    return {name: _quantity(value) for name, value in found.items()} if isinstance(found, dict) else found


def _quantity(value: Any) -> Any:
    try:
        return format(parse_quantity(value).normalize(), "f")
    except QuantityError:
        return value  # whatever it is, the API server will say so


def _each(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: [read(entry) for entry in found] if isinstance(found, list) else found


def _with(found: Any, parts: Mapping[str, Callable[[Any], Any]]) -> Any:
    if not isinstance(found, dict):
        return found
    return {name: parts[name](value) if name in parts else value for name, value in found.items()}


def _without(found: Any, defaults: Mapping[str, Any]) -> Any:
    if not isinstance(found, dict):
        return found
    return {n: v for n, v in found.items() if not (n in defaults and type(v) is type(defaults[n]) and v == defaults[n])}
