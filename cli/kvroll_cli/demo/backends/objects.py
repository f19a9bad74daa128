"""What the demo and the e2e tests do with the objects of an API server, whichever way they reach it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from kvroll_cli.errors import CliError

Object = dict[str, Any]


class BackendError(CliError):
    """A back end refused or failed: the message holds what was asked and what it answered."""


class BackendObjects(Protocol):
    """The objects of one namespace. Kinds are kubectl's words: `kvpool`, `pod`, `configmap`, `controllerrevision`, `job`."""

    namespace: str
    look_seconds: float
    """How long to wait between two looks at the same object: what a look costs differs by the way."""

    async def apply(self, *objects: Object) -> None:
        """Applies the objects.

        Raises:
            BackendError: one was refused; the message holds the API server's words.
        """

    async def get(self, kind: str, name: str) -> Object:
        """One object; empty when it is not there."""

    async def list(self, kind: str, selector: str = "") -> list[Object]:
        """The objects of a kind, by name."""

    async def patch(self, kind: str, name: str, change: Object) -> None:
        """A merge patch."""

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        """Sets `replicas` through the scale subresource."""

    async def delete(self, kind: str, name: str, timeout_seconds: float) -> None:
        """Deletes and waits until it is gone; absent is done.

        Raises:
            BackendError: it is still there.
        """


async def until(
    objects: BackendObjects, kind: str, name: str, holds: Callable[[Object], bool], *, timeout_seconds: float, what: str
) -> Object:
    """Looks until `holds` of the object, and returns it.

    Raises:
        BackendError: it did not in time; the message holds the object's conditions.
    """
    deadline = time.monotonic() + timeout_seconds
    while not holds(found := await objects.get(kind, name)):
        if time.monotonic() > deadline:
            raise BackendError(
                f"expected {kind}/{name} to be {what} within {timeout_seconds:g} s, found {conditions(found)}"
            )
        await asyncio.sleep(objects.look_seconds)
    return found


def condition(found: Object, kind: str) -> str:
    """The status of a condition as `kubectl wait` judges it: one about an older generation is Unknown."""
    generation = found.get("metadata", {}).get("generation", 0)
    for one in found.get("status", {}).get("conditions", ()):
        if one["type"] == kind and one.get("observedGeneration", 0) >= generation:
            return str(one["status"])
    return "Unknown"


def is_complete(pool: Object) -> bool:
    """True when the rollout of the pool's present spec is over and nothing old is left."""
    return condition(pool, "RolloutComplete") == "True"


def conditions(found: Object) -> str:
    """The conditions in words."""
    said = (
        f"{c['type']}={c['status']}/{c.get('reason')}: {c.get('message', '')}"
        for c in found.get("status", {}).get("conditions", ())
    )
    return "; ".join(said) or "no conditions"
