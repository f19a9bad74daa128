"""All semantics of the API over one store."""

from typing import Any

from kvroll_local.api.kinds.catalog import Catalog
from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects import garbage, pods
from kvroll_local.api.objects.change import How, Request, Unknown, owned
from kvroll_local.api.objects.identity import born, check_preconditions, exists, invalid, kept, not_found, now
from kvroll_local.api.objects.refused import Json, Refused, not_built
from kvroll_local.api.patches.apply import apply
from kvroll_local.api.patches.json_patch import PatchFailed, json_patch
from kvroll_local.api.patches.merge import merge
from kvroll_local.api.store.event import Key
from kvroll_local.api.store.store import Store


class Objects:
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
        metadata = born(kind, namespace, body.get("metadata") or {})
        key = Key(kind.resource, namespace, metadata["name"])
        if self.store.get(key) is not None:
            raise exists(kind, key.name)
        made = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if kind.status:
            made.pop("status", None)
        if kind.kind == "Pod":
            made = pods.born(kind, made)
        made = self._checked(kind, made, None, request)
        return made if request.dry_run else self.store.put(key, made, applied)

    def change(self, kind: Kind, namespace: str, name: str, body: Any, request: Request) -> tuple[Json, bool]:
        """The object after one update, patch or apply, and whether that made it. Writes nothing where nothing changes."""
        key = Key(kind.resource, namespace, name)
        old = self.store.get(key)
        if old is None:
            if request.how is not How.APPLY or request.subresource:
                raise not_found(kind, name)
            body = {**body, "metadata": {**(body.get("metadata") or {}), "name": name}}
            return self._create(kind, namespace, body, request, {f"{request.manager}/": owned(body, "")}), True
        if isinstance(body, dict):
            check_preconditions(kind, old, body.get("metadata") or {})
        new, applied = self._patched(kind, key, old, body, request)
        new = self._checked(kind, _kept(kind, old, new, request.subresource), old, request)
        if new.get("spec") != old.get("spec"):
            new = {**new, "metadata": {**new["metadata"], "generation": old["metadata"].get("generation", 1) + 1}}
        if request.dry_run:
            return new, False
        if new == old:
            if applied is not None:
                self.store.remember(key, applied)
            return old, False
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers") and kind.kind != "Pod":
            return self._gone(key), False
        return self.store.put(key, new, applied), False

    def delete(self, kind: Kind, namespace: str, name: str, options: Json, dry_run: bool = False) -> tuple[Json, bool]:
        """The object as it is now or was last, and whether it is gone. What has finalizers, and a bound Pod, goes later."""
        old = self.read(kind, namespace, name)
        _check_delete(kind, old, options)
        grace = pods.grace_seconds(old, options) if kind.kind == "Pod" else 0
        metadata = old["metadata"]
        if grace == 0 and not metadata.get("finalizers"):
            return (old, True) if dry_run else (self._gone(Key(kind.resource, namespace, name)), True)
        if dry_run or ("deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= grace):
            return old, False
        stamped = {
            **metadata,
            "deletionTimestamp": metadata.get("deletionTimestamp", now()),
            "deletionGracePeriodSeconds": grace,
        }
        return self.store.put(Key(kind.resource, namespace, name), {**old, "metadata": stamped}), False

    def bind(self, kind: Kind, namespace: str, name: str, node: str) -> None:
        """Gives a Pod its node."""
        old = self.read(kind, namespace, name)
        self.store.put(Key(kind.resource, namespace, name), pods.bound(kind, old, node))

    def collect(self) -> None:
        """Deletes what has owners of which none is left."""
        for key in garbage.orphans(self.store):
            kind = self.catalog.of_resource(key.resource)
            if kind is not None and self.store.get(key) is not None:
                self.delete(kind, key.namespace, key.name, {})

    def _gone(self, key: Key) -> Json:
        last = self.store.remove(key)
        self.collect()
        return last

    def _patched(self, kind: Kind, key: Key, old: Json, body: Any, request: Request) -> tuple[Json, Json | None]:
        if request.how is How.JSON:
            try:
                new = json_patch(old, body)
            except PatchFailed as error:
                raise Refused(
                    422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
                ) from error
            return _object(new), None
        body = _object(body)
        if request.how is How.UPDATE:
            return body, None
        if request.how is How.APPLY:
            mine, before = owned(body, request.subresource), self.store.applied(key)
            label = f"{request.manager}/{request.subresource}"
            new = apply(old, before.get(label, {}), mine, kind.schema.root if kind.schema else {})
            return new, {**before, label: mine}
        if request.how is How.STRATEGIC:
            _check_strategic(kind, body, "")
        return merge(old, body), None

    def _checked(self, kind: Kind, new: Json, old: Json | None, request: Request) -> Json:
        if kind.schema is None:
            return new
        shaped, unknown = kind.schema.shape(new)
        if unknown and request.unknown is Unknown.STRICT:
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            what = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: {listed}'
            raise Refused(400, "BadRequest", what)
        if request.unknown is Unknown.WARN:
            request.warnings.extend(f'unknown field "{path}"' for path in unknown)
        if problems := kind.schema.problems(shaped, old):
            raise invalid(kind, shaped["metadata"]["name"], problems)
        return shaped


def _object(body: Any) -> Json:
    if not isinstance(body, dict):
        raise Refused(400, "BadRequest", f"expected an object, found {type(body).__name__}")
    return body


def _kept(kind: Kind, old: Json, new: Json, subresource: str) -> Json:
    metadata = _object(new.get("metadata") or {})
    if subresource == "status":
        new, metadata = {**old, "status": new.get("status", {})}, old["metadata"]
    elif kind.status:
        new = {key: value for key, value in new.items() if key != "status"} | (
            {"status": old["status"]} if "status" in old else {}
        )
    if kind.kind == "ControllerRevision" and new.get("data") != old.get("data"):
        raise invalid(
            kind, old["metadata"]["name"], [("data", "FieldValueInvalid", "Invalid value: field is immutable")]
        )
    return {
        **new,
        "apiVersion": old["apiVersion"],
        "kind": old["kind"],
        "metadata": kept(kind, old["metadata"], metadata),
    }


def _check_delete(kind: Kind, old: Json, options: Json) -> None:
    for field, wanted in (options.get("preconditions") or {}).items():
        found = old["metadata"].get(field)
        if wanted and wanted != found:
            what = (
                f"the {field} in the precondition ({wanted}) does not match the {field} in record ({found}). "
                "The object might have been deleted and then recreated"
            )
            raise Refused(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {kind.qualified} "{old["metadata"]["name"]}": Precondition failed: {what}',
            )
    if options.get("propagationPolicy") in ("Orphan", "Foreground") or options.get("orphanDependents"):
        raise not_built(
            f"propagationPolicy {options.get('propagationPolicy', 'Orphan')}",
            "leave it out, or use Background: dependents go with their last owner",
        )


def _check_strategic(kind: Kind, value: Any, path: str) -> None:
    """A strategic merge is a merge patch as long as it holds no list and no directive."""
    if kind.schema is not None:
        raise Refused(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )
    if isinstance(value, list):
        raise not_built(
            f"strategic merge patch of the list {path}",
            "send a merge patch (kubectl patch --type=merge), which replaces the list",
        )
    if isinstance(value, dict):
        for key, part in value.items():
            if key.startswith("$"):
                raise not_built(f"strategic merge directive {key}", "send a merge patch (kubectl patch --type=merge)")
            _check_strategic(kind, part, f"{path}.{key}".lstrip("."))
