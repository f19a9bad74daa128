"""A model of store and watch: whatever is written, and however often the store is opened again, a watch folded up is the list."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvroll_local.api.http.watch import seen
from kvroll_local.api.objects.selectors import label_selector
from kvroll_local.api.store.event import Event, Key
from kvroll_local.api.store.store import Expired, Store

pytestmark = pytest.mark.slow

LOG_EVENTS = 6
NAMES, SPACES, LABELS = st.sampled_from("abc"), st.sampled_from(["n", "m"]), st.sampled_from(["x", "y", None])


def body(namespace: str, name: str, label: str | None, value: int) -> dict[str, Any]:
    labels = {"l": label} if label else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": labels},
        "value": value,
    }


class Watcher:
    """A client: lists, then folds what the watch tells into its own copy."""

    def __init__(self, store: Store, namespace: str, selector: str) -> None:
        self.namespace, self.selects = namespace, label_selector(selector)
        self.list(store)

    def expected(self, store: Store) -> dict[tuple[str, str], dict[str, Any]]:
        found = store.list("/things", self.namespace)
        return {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in found if self.selects(o)}

    def list(self, store: Store) -> None:
        self.at, self.copy = store.version, self.expected(store)

    def follow(self, store: Store) -> None:
        try:
            events = store.events(self.at)
        except Expired:
            assert self.at < store.since, "410 for a version that is still known"
            self.list(store)
            return
        assert [event.version for event in events] == sorted({event.version for event in events}), (
            "out of order or twice"
        )
        for event in events:
            assert event.version > self.at
            self.at = event.version
            self.fold(event)

    def fold(self, event: Event) -> None:
        told = seen(event, "/things", self.namespace, self.selects)
        if told is None:
            return
        what, o = told
        name = (o["metadata"]["namespace"], o["metadata"]["name"])
        assert o["metadata"]["resourceVersion"] == str(event.version)
        assert (name in self.copy) == (what != "ADDED"), f"{what} of {name} while the copy has {sorted(self.copy)}"
        if what == "DELETED":
            del self.copy[name]
        else:
            self.copy[name] = o


class StoreAndWatch(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "api.db"
        self.store = Store(self.path, LOG_EVENTS)
        self.truth: dict[tuple[str, str], dict[str, Any]] = {}
        self.watchers: list[Watcher] = []

    @initialize()
    def watch_everything(self) -> None:
        self.watchers = [
            Watcher(self.store, "", ""),
            Watcher(self.store, "n", "l=x"),
            Watcher(self.store, "", "l notin (x)"),
        ]

    @rule(namespace=SPACES, name=NAMES, label=LABELS, value=st.integers(0, 9))
    def write(self, namespace: str, name: str, label: str | None, value: int) -> None:
        before = self.store.version
        made = self.store.put(Key("/things", namespace, name), body(namespace, name, label, value))
        assert int(made["metadata"]["resourceVersion"]) == self.store.version == before + 1
        self.truth[namespace, name] = made

    @rule(namespace=SPACES, name=NAMES)
    def remove(self, namespace: str, name: str) -> None:
        if self.truth.pop((namespace, name), None) is not None:
            before = self.store.version
            last = self.store.remove(Key("/things", namespace, name))
            assert int(last["metadata"]["resourceVersion"]) == before + 1, "a deletion is a version of its own"

    @rule(label=LABELS)
    def write_another_resource(self, label: str | None) -> None:
        self.store.put(Key("/others", "n", "a"), body("n", "a", label, 0))

    @rule(which=st.integers(0, 2))
    def follow(self, which: int) -> None:
        watcher = self.watchers[which]
        watcher.follow(self.store)
        assert watcher.copy == watcher.expected(self.store)

    @rule()
    def open_again(self) -> None:
        version = self.store.version
        self.store.close()
        self.store = Store(self.path, LOG_EVENTS)
        assert self.store.version == version, "the clock never goes back, not even after the newest object was deleted"

    @invariant()
    def the_store_holds_what_was_written(self) -> None:
        found = {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in self.store.list("/things")}
        assert found == self.truth

    def teardown(self) -> None:
        for watcher in self.watchers:
            watcher.follow(self.store)
            assert watcher.copy == watcher.expected(self.store)
        self.store.close()
        self.folder.cleanup()


StoreAndWatch.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStoreAndWatch = StoreAndWatch.TestCase
