"""The store: one writer, one clock of versions, a bounded log of events for watchers."""

import asyncio
import builtins
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from kvroll_local.api.store.database import Database
from kvroll_local.api.store.event import Event, Json, Key

LOG_EVENTS = 8192


class Expired(Exception):
    """The events after that version are forgotten: list again."""


class Store:
    """Every object by its key, and what happened since `since`. Objects that it hands out must not be changed in place."""

    def __init__(self, path: Path, log_events: int = LOG_EVENTS) -> None:
        self._database = Database(path)
        self.version = self._database.version()
        self.since = self.version
        self._resources: dict[str, dict[tuple[str, str], Json]] = {}
        self._applied: dict[Key, Json] = {}
        for key, body, applied in self._database.objects():
            self._resources.setdefault(key.resource, {})[key.namespace, key.name] = body
            self._applied[key] = applied
        self._log: deque[Event] = deque()
        self._log_events = log_events
        self._news = asyncio.Event()

    def close(self) -> None:
        self._database.close()

    def get(self, key: Key) -> Json | None:
        return self._resources.get(key.resource, {}).get((key.namespace, key.name))

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Ordered by namespace and name; an empty namespace means all."""
        found = sorted(self._resources.get(resource, {}).items())
        return [body for (where, _), body in found if namespace in ("", where)]

    def all(self) -> Iterator[tuple[Key, Json]]:
        for resource, objects in self._resources.items():
            for (namespace, name), body in objects.items():
                yield Key(resource, namespace, name), body

    def applied(self, key: Key) -> Json:
        """By `manager/subresource`: the configuration that manager applied last."""
        return self._applied.get(key, {})

    def remember(self, key: Key, applied: Json) -> None:
        """Keeps what a manager applied where it changed nothing: no version, no event."""
        if applied != self._applied.get(key):
            self._database.remember(key, applied)
            self._applied[key] = applied

    def put(self, key: Key, body: Json, applied: Json | None = None) -> Json:
        """Writes one object: one version, one event, one transaction. Returns it with its resourceVersion."""
        applied = self.applied(key) if applied is None else applied
        version = self.version + 1
        made = _versioned(body, version)
        self._database.write(version, key, made, applied)
        before = self.get(key)
        self._resources.setdefault(key.resource, {})[key.namespace, key.name] = made
        self._applied[key] = applied
        self._tell(Event(version, key, before, made))
        return made

    def remove(self, key: Key) -> Json:
        """Deletes one object and returns its last state, at the version of the deletion. Raises KeyError where there is none."""
        before = self.get(key)
        if before is None:
            raise KeyError(key)
        version = self.version + 1
        self._database.write(version, key, None, {})
        last = _versioned(before, version)
        del self._resources[key.resource][key.namespace, key.name]
        self._applied.pop(key, None)
        self._tell(Event(version, key, last, None))
        return last

    def events(self, after: int) -> builtins.list[Event]:
        """What happened after that version, in order. Raises Expired where that is no longer known, or never was."""
        if after < self.since or after > self.version:
            raise Expired(f"too old resource version: {after} ({self.since})")
        found = []
        for event in reversed(self._log):
            if event.version <= after:
                break
            found.append(event)
        return found[::-1]

    async def news(self, seconds: float, after: int) -> None:
        """Returns once there is a newer version than `after`, at the latest after `seconds`."""
        if self.version != after:
            return
        waiting = self._news
        try:
            async with asyncio.timeout(seconds):
                await waiting.wait()
        except TimeoutError:
            pass

    def keep(self, log_events: int) -> None:
        """How many events are remembered for watchers from now on."""
        self._log_events = log_events
        self._forget()

    def _tell(self, event: Event) -> None:
        self.version = event.version
        self._log.append(event)
        self._forget()
        self._news.set()
        self._news = asyncio.Event()

    def _forget(self) -> None:
        while len(self._log) > self._log_events:
            self.since = self._log.popleft().version


def _versioned(body: Json, version: int) -> Json:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
