"""Draws a verdict: the word, each figure beside its threshold, and what to change."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvroll_cli.table import table_of
from kvroll_core.wall import Advice, Verdict, Wall

_STYLE = {Wall.IDLE: "green", Wall.UNKNOWN: "dim", Wall.HOST: "yellow"}


def document(verdict: Verdict, advice: Sequence[Advice]) -> dict[str, Any]:
    """Plain types; figures are in the unit that their name says, shares from 0 to 1."""
    return {
        "wall": str(verdict.wall),
        "basis": str(verdict.basis),
        "says": verdict.says,
        "evidence": [
            {"name": f.name, "value": f.value, "threshold": f.threshold, "over": f.is_over, "source": f.source}
            for f in verdict.evidence
        ],
        "advice": [
            {
                "lever": a.lever,
                "to": a.to,
                "why": a.why,
                "sessions_ratio": a.effect.sessions_ratio if a.effect else None,
                "step_ratio": a.effect.step_ratio if a.effect else None,
            }
            for a in advice
        ],
    }


def document_of_all(judged: Sequence[tuple[str, Verdict, Sequence[Advice]]]) -> dict[str, Any]:
    """The document of the first; of the others, if there are, under `workers` by name."""
    first, *others = [(name, document(verdict, advice)) for name, verdict, advice in judged]
    return first[1] | {"workers": dict(others)} if others else first[1]


def verdict_view(title: str, verdict: Verdict, advice: Sequence[Advice]) -> RenderableType:
    """The word and its reason, the evidence, the advice."""
    head = Text(f"{title}: ")
    head.append(str(verdict.wall), style=f"bold {_STYLE.get(verdict.wall, 'red')}")
    head.append(f" ({verdict.basis}): {verdict.says}")
    evidence = table_of("FIGURE", "VALUE", "THRESHOLD", "FROM")
    for figure in verdict.evidence:
        value = Text(_number(figure.value), style="bold" if figure.is_over else "")
        evidence.add_row(figure.name, value, _number(figure.threshold), figure.source)
    parts: list[RenderableType] = [head, "", evidence]
    if advice:
        table = table_of("CHANGE", "TO", "SESSIONS", "STEP", "WHY")
        for a in advice:
            effect = a.effect
            table.add_row(
                a.lever,
                a.to,
                _ratio(effect.sessions_ratio if effect else None),
                _ratio(effect.step_ratio if effect else None),
                a.why,
            )
        parts += ["", table]
    return Group(*parts)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} x"
