"""One write, as watchers see it."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """Where an object lives. `resource` is `group/plural`; `namespace` is empty for what has none."""

    resource: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Event:
    """The object before and after one write; `None` where there was none.

    The `before` of a deleted object carries the version of its deletion.
    """

    version: int
    key: Key
    before: Json | None
    after: Json | None
