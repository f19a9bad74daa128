"""What the methods do to collections, objects and subresources."""

from pathlib import Path

from starlette.responses import Response

from kvroll_local.api.http import pod_doors
from kvroll_local.api.http.answers import answer, many, one
from kvroll_local.api.http.call import Call
from kvroll_local.api.http.scale import change_of, scale_of
from kvroll_local.api.http.watch import watch
from kvroll_local.api.objects.change import How
from kvroll_local.api.objects.objects import StoredObjects
from kvroll_local.api.objects.refused import Json, Refused, not_built
from kvroll_local.api.patches.merge import merge

_POD_DOORS_LEFT_OUT = ("exec", "attach", "portforward", "eviction", "ephemeralcontainers", "resize")


def _not_allowed() -> Refused:
    return Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def _nothing_there(call: Call) -> Refused:
    what = f"there is nothing at {call.http.url.path} of kvroll's embedded API server"
    return Refused(404, "NotFound", f"the server could not find the requested resource: {what}")


def _check_version(call: Call, version: int) -> None:
    """A list is always of the newest version, and whole: `limit` is allowed to be ignored, the past is not kept."""
    asked = call.number("resourceVersion")
    if call.query("continue"):
        raise Refused(
            410, "Expired", "this list was whole: kvroll's embedded API server gives out no continue token; list again"
        )
    if asked is None:
        return
    if asked > version:
        raise Refused(504, "Timeout", f"Too large resource version: {asked}, current: {version}")
    if call.query("resourceVersionMatch") == "Exact" and asked != version:
        raise Refused(
            410, "Expired", f"the resource version {asked} is too old: only the newest, {version}, can be listed"
        )


class ApiResources:
    """Answers every call that names a kind."""

    def __init__(self, objects: StoredObjects, state: Path) -> None:
        self._objects, self._state = objects, state

    async def respond(self, call: Call) -> Response:
        if not call.name:
            return await self._collection(call)
        if call.kind.namespaced and not call.namespace:
            raise _nothing_there(call)
        if not call.sub or (call.sub == "status" and call.kind.status):
            return await self._object(call)
        if call.sub == "scale" and call.kind.scale:
            return await self._scale(call)
        if call.kind.kind == "Pod":
            return await self._pod_door(call)
        raise _nothing_there(call)

    async def _collection(self, call: Call) -> Response:
        if call.method == "GET":
            if call.flag("watch"):
                return watch(call, self._objects.store)
            _check_version(call, self._objects.store.version)
            selects = call.selector()
            items = [o for o in self._objects.store.list(call.kind.resource, call.namespace) if selects(o)]
            return many(call, items, self._objects.store.version)
        if call.method == "POST":
            if call.kind.namespaced and not call.namespace:
                raise _not_allowed()
            return one(call, self._objects.create(call.kind, call.namespace, await call.object(), call.request()), 201)
        if call.method == "DELETE":
            return await self._delete_collection(call)
        raise _not_allowed()

    async def _delete_collection(self, call: Call) -> Response:
        options, selects = await self._delete_options(call), call.selector()
        found = [o for o in self._objects.store.list(call.kind.resource, call.namespace) if selects(o)]
        for o in found:
            try:
                self._objects.delete(
                    call.kind, o["metadata"].get("namespace", ""), o["metadata"]["name"], options, call.dry_run()
                )
            except Refused as error:
                if error.code != 404:  # went with its owner meanwhile
                    raise
        return many(call, found, self._objects.store.version)

    async def _object(self, call: Call) -> Response:
        if call.method == "GET":
            return one(call, self._objects.read(call.kind, call.namespace, call.name))
        if call.method == "DELETE" and not call.sub:
            options = await self._delete_options(call)
            dry_run = call.dry_run() or bool(options.get("dryRun"))
            o, gone = self._objects.delete(call.kind, call.namespace, call.name, options, dry_run)
            return answer(_deleted(call, o)) if gone and call.kind.kind != "Pod" else one(call, o)
        if call.method not in ("PUT", "PATCH"):
            raise _not_allowed()
        how = call.how()
        body = await call.body() if how is How.JSON else await call.object()
        o, made = self._objects.change(call.kind, call.namespace, call.name, body, call.request(how))
        return one(call, o, 201 if made else 200)

    async def _delete_options(self, call: Call) -> Json:
        body = await call.body()
        if body is not None and not isinstance(body, dict):
            raise Refused(400, "BadRequest", f"expected DeleteOptions as body, found {type(body).__name__}")
        query: Json = {
            key: call.query(key)
            for key in ("propagationPolicy", "orphanDependents")
            if call.query(key) not in ("", "false")
        }
        if (grace := call.number("gracePeriodSeconds")) is not None:
            query["gracePeriodSeconds"] = grace
        return query | (body or {})

    async def _scale(self, call: Call) -> Response:
        o = self._objects.read(call.kind, call.namespace, call.name)
        if call.method == "GET":
            return answer(scale_of(call.kind, o))
        if call.method not in ("PUT", "PATCH"):
            raise _not_allowed()
        how, body = call.how(), await call.object()
        if how not in (How.UPDATE, How.MERGE):
            raise not_built(f"{how.value} of a scale", "send a merge patch or an update")
        scale = merge(scale_of(call.kind, o), body) if how is How.MERGE else body
        if how is How.MERGE and "resourceVersion" not in (body.get("metadata") or {}):
            scale["metadata"].pop("resourceVersion", None)
        changed, _ = self._objects.change(
            call.kind, call.namespace, call.name, change_of(call.kind, scale), call.request(How.MERGE)
        )
        return answer(scale_of(call.kind, changed))

    async def _pod_door(self, call: Call) -> Response:
        name, _, port = call.name.partition(":")
        if call.sub in _POD_DOORS_LEFT_OUT:
            raise not_built(f"pods/{call.sub}", "the workers are processes of this machine: use its own tools")
        if call.sub == "log" and call.method == "GET":
            return pod_doors.log(call, self._objects.read(call.kind, call.namespace, name), self._state)
        if call.sub == "proxy":
            return await pod_doors.proxy(call, self._objects.read(call.kind, call.namespace, name), port)
        if call.sub == "binding" and call.method == "POST":
            target = (await call.object()).get("target") or {}
            if not target.get("name"):
                raise Refused(400, "BadRequest", "binding: expected target.name, the node's name")
            self._objects.bind(call.kind, call.namespace, name, str(target["name"]))
            return answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)
        raise _nothing_there(call)


def _deleted(call: Call, o: Json) -> Json:
    details = {"name": call.name, "kind": call.kind.plural, "uid": o["metadata"]["uid"]} | (
        {"group": call.kind.group} if call.kind.group else {}
    )
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
