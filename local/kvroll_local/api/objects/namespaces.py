"""Namespaces: what is made must have one, and what is in one goes with it."""

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.store.event import Key
from kvroll_local.api.store.store import Store

RESOURCE = "/namespaces"
KEPT = ("default", "kube-system")


def check(store: Store, kind: Kind, namespace: str, name: str) -> None:
    """Raises Refused where nothing can be made in that namespace."""
    if not kind.namespaced:
        return
    found = store.get(Key(RESOURCE, "", namespace))
    if found is None:
        details = {"name": namespace, "kind": "namespaces"}
        raise Refused(404, "NotFound", f'namespaces "{namespace}" not found', details)
    if "deletionTimestamp" in found["metadata"]:
        what = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise Refused(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {what}')


def check_delete(name: str) -> None:
    if name in KEPT:
        raise Refused(403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted')


def is_empty(store: Store, name: str) -> bool:
    return not any(key.namespace == name for key, _ in store.all())


def born(namespace: Json) -> Json:
    return {**namespace, "status": {"phase": "Active"}}


def terminating(namespace: Json) -> Json:
    return {**namespace, "status": {"phase": "Terminating"}}
