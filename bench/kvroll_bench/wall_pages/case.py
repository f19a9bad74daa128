"""A page with the wall that it is at, and what the rule makes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvroll_bench.wall_pages.scene import EVERY_SECONDS, LOOKS
from kvroll_cli.engines.scrape import read_sample
from kvroll_core.budget import ModelShape
from kvroll_core.wall import Judged, Machine, SeriesError, Told, engines_in, judge_engine

REFUSED = "Refused"
"""Of a page that shows no engine."""
H100 = Machine(bytes_per_second=3.0e12, flops_per_second=600e12)
LLAMA_8B = ModelShape(32, 4096, 32, 8, 128, 14336, 128256, False, 131072)


@dataclass(frozen=True)
class Case:
    """`page` is the text at the nth look; `walls` the engines of the page, in their order; `told` what the asker says beside it.
    `missing` is a figure that an Unknown one shall name. `held_back`: written after the rule stood, and not looked at to change it.
    """

    name: str
    engine: str
    page: Callable[[int], str]
    walls: Sequence[str]
    told: Told = field(default_factory=lambda: Told(machine=H100))
    queues: bool = False
    missing: str = ""
    held_back: bool = False


@dataclass(frozen=True)
class Looked:
    """What was found: the walls, and what is wrong with them or with the advice."""

    case: Case
    walls: tuple[str, ...]
    judged: tuple[Judged, ...]

    @property
    def is_right(self) -> bool:
        """Every engine found and called what it is, and of a queue that it is one."""
        if self.walls != tuple(self.case.walls):
            return False
        if self.case.queues and not any(j.verdict.queues for j in self.judged):
            return False
        named = {m.figure for j in self.judged for m in j.verdict.missing}
        return not self.case.missing or self.case.missing in named

    @property
    def advice_without_evidence(self) -> list[str]:
        """Advice on an Unknown wall, or of a dtype that the engine does not have; Unknown that does not say what brings what is missing."""
        found = []
        for one in self.judged:
            unknown = str(one.verdict.wall) == "Unknown"
            if unknown and one.advice:
                found.append(f"{self.case.name}: advice without a verdict")
            if unknown and not all(m.bring for m in one.verdict.missing):
                found.append(f"{self.case.name}: nothing brings what is missing")
            found += [
                f"{self.case.name}: {one.engine.title} has no {a.lever} {a.to}"
                for a in one.advice
                if a.lever in ("kvCache", "weights") and a.effect and not one.engine.is_ours and not a.flag
            ]
        return found

    def row(self) -> dict[str, Any]:
        """A line of the report."""
        return {
            "page": self.case.name,
            "engine": self.case.engine,
            "expected": list(self.case.walls),
            "found": list(self.walls),
            "right": self.is_right,
            "held_back": self.case.held_back,
        }


def looked(case: Case) -> Looked:
    """Looks at the page as `kvroll wall` does, over half a minute."""
    samples = [read_sample(case.page(n), n * EVERY_SECONDS) for n in range(LOOKS)]
    try:
        judged = tuple(judge_engine(engine, case.told) for engine in engines_in(samples))
    except SeriesError:
        return Looked(case, (REFUSED,), ())
    return Looked(case, tuple(str(j.verdict.wall) for j in judged), judged)
