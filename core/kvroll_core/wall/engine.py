"""The engines whose pages can be read: their names for each figure, their dtypes and flags, from `engines.toml`."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Labels = tuple[tuple[str, str], ...]

_SPEC = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<label>\w+)=(?P<value>\w+)\})?")


@dataclass(frozen=True)
class Selector:
    """A series by its name and, where it is one of a family, by a label."""

    name: str
    label: tuple[str, str] | None = None

    @classmethod
    def parse(cls, spec: str) -> "Selector":
        """`name` or `name{label=value}`."""
        found = _SPEC.fullmatch(spec)
        if found is None:
            raise ValueError(f"expected name or name{{label=value}}, found {spec!r}")
        label = (found["label"], found["value"]) if found["label"] else None
        return cls(found["name"], label)

    def of(self, found: Mapping[Labels, float]) -> Mapping[Labels, float]:
        """Those of a family that it selects, without the label."""
        if self.label is None:
            return found
        return {
            tuple(pair for pair in labels if pair != self.label): number
            for labels, number in found.items()
            if self.label in labels
        }

    def __str__(self) -> str:
        return f'{self.name}{{{self.label[0]}="{self.label[1]}"}}' if self.label else self.name


@dataclass(frozen=True)
class Switch:
    """What an engine can be changed to: `lever` is kvCache or weights, `bits` those of an element with its scales, `flag` what does it.

    `since` is the first version with it, empty where every version that is in use has it; `alias` names the switch that is the same size
    and is named instead.
    """

    lever: str
    to: str
    bits: float
    flag: str
    since: str = ""
    alias: str = ""

    def is_in(self, version: str) -> bool:
        """Whether that version has it; of an unknown version (empty) only what all have."""
        return not self.since or (bool(version) and _ordered(version) >= _ordered(self.since))


@dataclass(frozen=True)
class Engine:
    """An engine by what it tells and what it can be told.

    `series` maps a role to where it is found, the newest name first. `ranks` are labels that tell the ranks of one engine apart,
    `breakdowns` those whose empty value is the sum. `evidence` says how a figure is brought that is not told. `sessions` is the flag that
    limits a batch, `dtype` the 16 bits that a cache is in where nobody says otherwise.
    """

    name: str
    title: str
    source: str
    sessions: str
    dtype: str
    series: Mapping[str, tuple[Selector, ...]]
    marks: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    breakdowns: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    evidence: Mapping[str, str] | None = None

    @property
    def is_ours(self) -> bool:
        """A worker of kvroll, which measures its formats and takes every dtype of the table."""
        return self.name == "kvroll"

    def brings(self, what: str) -> str | None:
        """The command or flag that makes the engine tell something."""
        return (self.evidence or {}).get(what)

    def switch(self, lever: str, to: str) -> Switch | None:
        """The switch of that word; None: the engine has no such dtype."""
        return next((s for s in self.switches if s.lever == lever and s.to.lower() == to.lower()), None)


@dataclass(frozen=True)
class Router:
    """Something before engines, whose page does not tell what they do."""

    title: str
    marks: tuple[str, ...]
    source: str


@cache
def engines() -> tuple[Engine, ...]:
    """All of the table; kvroll comes first, since its workers show vLLM's names too."""
    return tuple(_engine(name, told) for name, told in _table().items() if name != "routers")


@cache
def routers() -> tuple[Router, ...]:
    """Those that are told from an engine by a series of their own."""
    return tuple(Router(r["title"], tuple(r["marks"]), r["source"]) for r in _table()["routers"])


def engine_named(name: str) -> Engine:
    """The engine of that key of the table.

    Raises:
        KeyError: there is none.
    """
    return next(e for e in engines() if e.name == name)


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((resources.files("kvroll_core.wall") / "engines.toml").read_text(encoding="utf-8"))


def _engine(name: str, told: Mapping[str, Any]) -> Engine:
    return Engine(
        name=name,
        title=told["title"],
        source=told["source"],
        sessions=told["sessions"],
        dtype=told["dtype"],
        series={role: tuple(Selector.parse(s) for s in specs) for role, specs in told["series"].items()},
        marks=tuple(told.get("marks", ())),
        ranks=tuple(told.get("ranks", ())),
        breakdowns=tuple(told.get("breakdowns", ())),
        switches=tuple(Switch(**s) for s in told.get("switches", ())),
        evidence=told.get("evidence", {}),
    )


def _ordered(version: str) -> tuple[int, ...]:
    """Numbers of a version; what is no number (rc1, +cu128) ends it."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(n) for n in found[1].split(".")) if found else ()
