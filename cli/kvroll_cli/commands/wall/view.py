"""Draws a verdict: the word, each figure beside its threshold, and what to change."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvroll_cli.table import table_of
from kvroll_core.wall import Advice, Judged, Wall

_STYLE = {Wall.IDLE: "green", Wall.UNKNOWN: "dim", Wall.HOST: "yellow"}


def document(judged: Judged) -> dict[str, Any]:
    """Plain types; figures are in the unit that their name says, shares from 0 to 1."""
    verdict = judged.verdict
    return {
        "engine": judged.engine.title,
        "wall": str(verdict.wall),
        "basis": str(verdict.basis),
        "says": verdict.says,
        "evidence": [
            {"name": f.name, "value": f.value, "threshold": f.threshold, "over": f.is_over, "source": f.source}
            for f in verdict.evidence
        ],
        "missing": [{"figure": m.figure, "bring": m.bring} for m in verdict.missing],
        "advice": [
            {
                "lever": a.lever,
                "to": a.to,
                "flag": a.flag or None,
                "why": a.why,
                "sessions_ratio": a.effect.sessions_ratio if a.effect else None,
                "step_ratio": a.effect.step_ratio if a.effect else None,
            }
            for a in judged.advice
        ],
    }


def document_of_all(judged: Sequence[tuple[str, Judged]]) -> dict[str, Any]:
    """The document of the first; of the others, if there are, under `workers` by name."""
    first, *others = [(name, document(one)) for name, one in judged]
    return first[1] | {"workers": dict(others)} if others else first[1]


def verdict_view(title: str, judged: Judged) -> RenderableType:
    """The word and its reason, the evidence, what is missing, the advice."""
    verdict = judged.verdict
    head = Text(f"{title}: ")
    head.append(str(verdict.wall), style=f"bold {_STYLE.get(verdict.wall, 'red')}")
    head.append(f" ({verdict.basis}): {verdict.says}")
    evidence = table_of("FIGURE", "VALUE", "THRESHOLD", "FROM")
    for figure in verdict.evidence:
        value = Text(_number(figure.value), style="bold" if figure.is_over else "")
        evidence.add_row(figure.name, value, _number(figure.threshold), figure.source)
    parts: list[RenderableType] = [head, "", evidence]
    if verdict.missing:
        missing = table_of("MISSING", "WHAT BRINGS IT")
        for one in verdict.missing:
            missing.add_row(one.figure, one.bring)
        parts += ["", missing]
    if judged.advice:
        parts += ["", _advice_table(judged.advice)]
    elif not verdict.missing and judged.load is None:
        parts += ["", "what a change does is reckoned from the model: say --model PATH"]
    return Group(*parts)


def _advice_table(advice: Sequence[Advice]) -> RenderableType:
    """With a column of flags where the engine is told by flags."""
    flags = any(a.flag for a in advice)
    table = table_of("CHANGE", "TO", "SESSIONS", "STEP", *(["FLAG"] if flags else []), "WHY")
    for a in advice:
        effect = a.effect
        ratios = [_ratio(effect.sessions_ratio if effect else None), _ratio(effect.step_ratio if effect else None)]
        table.add_row(a.lever, a.to, *ratios, *([a.flag or "-"] if flags else []), a.why)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} x"
