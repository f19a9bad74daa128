"""Discovery: which groups, versions and resources are served."""

import platform
from typing import Any

from kvroll_local.api.kinds.catalog import Catalog
from kvroll_local.api.kinds.kind import VERBS, Json, Kind

# The Kubernetes version whose behaviour is followed; the suffix says that this is not it.
VERSION: Json = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0+kvroll.embedded",
    "platform": f"{platform.system().lower()}/{platform.machine()}",
}
_SUBRESOURCE_VERBS = ["get", "patch", "update"]


def discovered(catalog: Catalog, path: str) -> Json | None:
    """The document at a path of discovery; None where that is no such path."""
    groups = catalog.groups()
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(name, versions) for name, versions in groups.items()],
            }
        case ["api", "v1"]:
            return _resources(catalog, "", "v1")
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["apis", group, version] if version in groups.get(group, ()):
            return _resources(catalog, group, version)
    return None


def _group(name: str, versions: list[str]) -> Json:
    found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0]}


def _resources(catalog: Catalog, group: str, version: str) -> Json:
    found = [entry for kind in catalog if (kind.group, kind.version) == (group, version) for entry in _entries(kind)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}".strip("/"),
        "resources": found,
    }


def _entries(kind: Kind) -> list[Json]:
    base: Json = {
        "name": kind.plural,
        "singularName": kind.singular or kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
    }
    short: dict[str, Any] = {"shortNames": list(kind.short_names)} if kind.short_names else {}
    categories: dict[str, Any] = {"categories": list(kind.categories)} if kind.categories else {}
    found = [{**base, "verbs": list(VERBS), **short, **categories}]

    # Subresources carry neither short names nor categories: `kubectl get all` would ask for them.
    def add(name: str, verbs: list[str], **more: str) -> None:
        found.append({**base, "name": f"{kind.plural}/{name}", "singularName": "", "verbs": verbs, **more})

    if kind.status:
        add("status", _SUBRESOURCE_VERBS)
    if kind.scale:
        add("scale", _SUBRESOURCE_VERBS, kind="Scale", group="autoscaling", version="v1")
    if kind.kind == "Pod":
        add("log", ["get"])
        add("proxy", ["get"], kind="PodProxyOptions")
        add("binding", ["create"], kind="Binding")
    return found
