"""Watches: what happened after a version, then what happens."""

import time
from collections.abc import AsyncIterator, Iterator

from starlette.responses import Response, StreamingResponse

from kvroll_local.api.http.answers import as_table, encoded
from kvroll_local.api.http.call import Call
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.objects.selectors import Selector
from kvroll_local.api.store.event import Event
from kvroll_local.api.store.store import Expired, Store
from kvroll_local.api.views import events

_UNASKED_SECONDS = 1800.0
_BOOKMARK_SECONDS = 30.0


def watch(call: Call, store: Store) -> Response:
    """The stream of one watcher. Selectors are parsed here, so that a bad one is refused and not a stream."""
    return StreamingResponse(_Watch(call, store).lines(), media_type="application/json")


def seen(event: Event, resource: str, namespace: str, selects: Selector) -> tuple[str, Json] | None:
    """What a watcher of a resource sees of a write: an object that no longer matches is DELETED to it. An empty namespace means all."""
    if event.key.resource != resource or namespace not in ("", event.key.namespace):
        return None
    was = event.before is not None and selects(event.before)
    if event.after is not None and selects(event.after):
        return ("MODIFIED" if was else "ADDED"), event.after
    if was and event.before is not None:
        metadata = {**event.before["metadata"], "resourceVersion": str(event.version)}
        return "DELETED", {**event.before, "metadata": metadata}
    return None


class _Watch:
    def __init__(self, call: Call, store: Store) -> None:
        self._call, self._store, self._selects = call, store, call.selector()
        sends_initial = call.flag("sendInitialEvents")
        if sends_initial and call.query("resourceVersionMatch") != "NotOlderThan":
            what = "resourceVersionMatch: Forbidden: sendInitialEvents needs resourceVersionMatch=NotOlderThan"
            raise Refused(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {what}')
        asked = call.number("resourceVersion")
        self._lists = sends_initial or not asked
        self._at = asked or store.version
        seconds = call.number("timeoutSeconds")
        self._ends = time.monotonic() + (seconds or _UNASKED_SECONDS)
        self._bookmarks = call.flag("allowWatchBookmarks")

    async def lines(self) -> AsyncIterator[bytes]:
        """One JSON object a line. Ends with the time-out, or with an ERROR 410 where the log has moved on."""
        if self._lists:
            for line in self._initial():
                yield line
        try:
            while True:
                for event in self._store.events(self._at):
                    self._at = event.version
                    if told := seen(event, self._call.kind.resource, self._call.namespace, self._selects):
                        yield self._line(*told)
                left = self._ends - time.monotonic()
                if left <= 0:
                    break
                await self._store.news(min(left, _BOOKMARK_SECONDS), self._at)
                if self._bookmarks and self._at == self._store.version and time.monotonic() < self._ends:
                    yield self._bookmark()
        except Expired as error:
            yield encoded({"type": "ERROR", "object": Refused(410, "Expired", str(error)).status()}) + b"\n"
            return
        if self._bookmarks:
            yield self._bookmark()

    def _initial(self) -> Iterator[bytes]:
        """What is there already, as ADDED. The list and its version are taken together."""
        self._at = self._store.version
        for o in self._store.list(self._call.kind.resource, self._call.namespace):
            if self._selects(o):
                yield self._line("ADDED", o)
        if self._call.flag("sendInitialEvents"):
            yield self._bookmark({"k8s.io/initial-events-end": "true"})

    def _line(self, what: str, o: Json) -> bytes:
        if self._call.wants_table:
            shown = as_table(self._call, [o], {"resourceVersion": o["metadata"]["resourceVersion"]})
        else:
            shown = events.shown(self._call.kind, o)
        return encoded({"type": what, "object": shown}) + b"\n"

    def _bookmark(self, annotations: Json | None = None) -> bytes:
        metadata: Json = {"resourceVersion": str(self._at)} | ({"annotations": annotations} if annotations else {})
        kind = self._call.kind
        shown: Json = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if self._call.wants_table:
            shown = as_table(self._call, [], {"resourceVersion": str(self._at)}) | {
                "rows": [{"cells": [], "object": shown}]
            }
        return encoded({"type": "BOOKMARK", "object": shown}) + b"\n"
