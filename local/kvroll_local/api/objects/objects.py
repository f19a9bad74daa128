"""All semantics of the API over one store."""

from datetime import UTC, datetime
from typing import Any

from kvroll_local.api.kinds.catalog import Catalog
from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects import garbage, namespaces, pods
from kvroll_local.api.objects.admission import admitted
from kvroll_local.api.objects.change import How, Request, owned
from kvroll_local.api.objects.expiry import expired_events
from kvroll_local.api.objects.identity import (
    born,
    check_body,
    check_finalizers,
    check_preconditions,
    exists,
    invalid,
    kept,
    not_found,
    now,
)
from kvroll_local.api.objects.patching import patched
from kvroll_local.api.objects.refused import Json, Refused, not_built
from kvroll_local.api.store.event import Key
from kvroll_local.api.store.store import Store


class StoredObjects:
    """Reads and writes objects of the catalog's kinds; the only writer of the store."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self.store, self.catalog = store, catalog

    def read(self, kind: Kind, namespace: str, name: str) -> Json:
        found = self.store.get(Key(kind.resource, namespace, name))
        if found is None:
            raise not_found(kind, name)
        return found

    def create(self, kind: Kind, namespace: str, body: Json, request: Request) -> Json:
        return self._create(kind, namespace, body, request, None)

    def _create(self, kind: Kind, namespace: str, body: Json, request: Request, applied: Json | None) -> Json:
        check_body(kind, body, "")
        metadata = born(kind, namespace, body.get("metadata") or {})
        key = Key(kind.resource, namespace, metadata["name"])
        namespaces.check(self.store, kind, namespace, key.name)
        if self.store.get(key) is not None:
            raise exists(kind, key.name)
        made = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if kind.status:
            made.pop("status", None)
        made = admitted(kind, made, None, request)
        if kind.kind == "Pod":
            made = pods.born(kind, made)
        elif kind.kind == "Namespace":
            made = namespaces.born(made)
        return made if request.dry_run else self.store.put(key, made, applied)

    def change(self, kind: Kind, namespace: str, name: str, body: Any, request: Request) -> tuple[Json, bool]:
        """The object after one update, patch or apply, and whether that made it. Writes nothing where nothing changes."""
        key = Key(kind.resource, namespace, name)
        old = self.store.get(key)
        if isinstance(body, dict):
            check_body(kind, body, name)
        if old is None:
            if request.how is not How.APPLY or request.subresource:
                raise not_found(kind, name)
            body = {**body, "metadata": {**(body.get("metadata") or {}), "name": name}}
            return self._create(kind, namespace, body, request, {f"{request.manager}/": owned(body, "")}), True
        if isinstance(body, dict):
            check_preconditions(kind, old, body.get("metadata") or {}, request)
        new, applied = patched(kind, old, self.store.applied(key), body, request)
        new = admitted(kind, _kept(kind, old, new, request.subresource), old, request)
        check_finalizers(kind, old, new)
        if kind.generation and _asked(new) != _asked(old):
            new = {**new, "metadata": {**new["metadata"], "generation": old["metadata"].get("generation", 0) + 1}}
        if request.dry_run:
            return new, False
        if new == old:
            if applied is not None:
                self.store.remember(key, applied)
            return old, False
        if _may_go(new["metadata"]) and kind.kind != "Namespace":
            return self._gone(key), False
        return self.store.put(key, new, applied), False

    def delete(self, kind: Kind, namespace: str, name: str, options: Json, dry_run: bool = False) -> tuple[Json, bool]:
        """The object as it is now or was last, and whether it is gone. What has finalizers, and a bound Pod, goes later."""
        old, key = self.read(kind, namespace, name), Key(kind.resource, namespace, name)
        _check_delete(kind, old, options)
        if kind.kind == "Namespace":
            return self._delete_namespace(old, dry_run), False
        grace = pods.grace_seconds(old, options) if kind.kind == "Pod" else 0
        metadata = old["metadata"]
        if grace == 0 and not metadata.get("finalizers"):
            return (old, True) if dry_run else (self._gone(key), True)
        if dry_run or ("deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= grace):
            return old, False
        stamped = {**metadata, "deletionTimestamp": now(grace), "deletionGracePeriodSeconds": grace}
        if kind.generation and "deletionTimestamp" not in metadata:
            stamped["generation"] = metadata.get("generation", 0) + 1
        return self.store.put(key, {**old, "metadata": stamped}), False

    def bind(self, kind: Kind, namespace: str, name: str, node: str) -> None:
        """Gives a Pod its node."""
        old = self.read(kind, namespace, name)
        self.store.put(Key(kind.resource, namespace, name), pods.bound(kind, old, node))

    def sweep(self, moment: datetime | None = None) -> None:
        """Removes what nobody asks to be removed: old events, dependents without an owner, emptied namespaces."""
        for key in expired_events(self.store, moment or datetime.now(UTC)):
            self.store.remove(key)
        self._collect()

    def _collect(self) -> None:
        for key in garbage.orphans(self.store):
            kind = self.catalog.of_resource(key.resource)
            if kind is not None and self.store.get(key) is not None:
                self.delete(kind, key.namespace, key.name, {})
        for space in self.store.list(namespaces.RESOURCE):
            name = space["metadata"]["name"]
            if _may_go(space["metadata"]) and namespaces.is_empty(self.store, name):
                self.store.remove(Key(namespaces.RESOURCE, "", name))

    def _gone(self, key: Key) -> Json:
        last = self.store.remove(key)
        self._collect()
        return last

    def _delete_namespace(self, old: Json, dry_run: bool) -> Json:
        name = old["metadata"]["name"]
        namespaces.check_delete(name)
        stamped = {**old["metadata"], "deletionTimestamp": old["metadata"].get("deletionTimestamp", now())}
        made = namespaces.terminating({**old, "metadata": stamped})
        if dry_run:
            return made
        made = self.store.put(Key(namespaces.RESOURCE, "", name), made) if made != old else old
        for key in [key for key, _ in self.store.all() if key.namespace == name]:
            kind = self.catalog.of_resource(key.resource)
            if kind is not None and self.store.get(key) is not None:
                self.delete(kind, key.namespace, key.name, {})
        self._collect()
        return made


def _asked(o: Json) -> Json:
    """What a change of is counted in metadata.generation."""
    return {key: value for key, value in o.items() if key not in ("metadata", "status")}


def _may_go(metadata: Json) -> bool:
    is_waiting = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not is_waiting


def _kept(kind: Kind, old: Json, new: Json, subresource: str) -> Json:
    metadata = new.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise invalid(
            kind, old["metadata"]["name"], [("metadata", "FieldValueInvalid", "Invalid value: expected an object")]
        )
    if subresource == "status":
        new, metadata = {**old, "status": new.get("status", {})}, old["metadata"]
    elif kind.status:
        status = {"status": old["status"]} if "status" in old else {}
        new = {key: value for key, value in new.items() if key != "status"} | status
    if kind.kind == "Pod" and not subresource:
        new = pods.defaulted(_pod(kind, new))
        pods.check_change(kind, old, new)
    return {
        **new,
        "apiVersion": old["apiVersion"],
        "kind": old["kind"],
        "metadata": kept(kind, old["metadata"], metadata),
    }


def _pod(kind: Kind, new: Json) -> Json:
    if not (new.get("spec") or {}).get("containers"):
        name = (new.get("metadata") or {}).get("name", "")
        raise invalid(kind, name, [("spec.containers", "FieldValueRequired", "Required value")])
    return new


def _check_delete(kind: Kind, old: Json, options: Json) -> None:
    for field, wanted in (options.get("preconditions") or {}).items():
        found = old["metadata"].get(field)
        if wanted and wanted != found:
            word, fate = ("UID", "deleted and then recreated") if field == "uid" else ("ResourceVersion", "modified")
            what = f"the {word} in the precondition ({wanted}) does not match the {word} in record ({found})"
            name, of = old["metadata"]["name"], kind.qualified_kind if kind.custom else kind.qualified
            message = f'Operation cannot be fulfilled on {of} "{name}": {what}. The object might have been {fate}'
            raise Refused(409, "Conflict", message, {"name": name, "group": kind.group, "kind": kind.kind})
    policy = options.get("propagationPolicy")
    if policy not in (None, "", "Background") or options.get("orphanDependents"):
        raise not_built(
            f"propagationPolicy {policy or 'Orphan'}", "use Background: dependents go with their last owner"
        )
