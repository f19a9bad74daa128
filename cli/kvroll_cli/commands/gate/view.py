"""Draws a gate's evidence in the terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from kvroll_cli.table import table_of
from kvroll_core.gate import Evidence, GateVerdict
from kvroll_core.gate.report import limits, number

STYLES = {GateVerdict.PASS: "green", GateVerdict.FAIL: "red", GateVerdict.INCONCLUSIVE: "yellow"}


def evidence_view(evidence: Evidence) -> RenderableType:
    """The verdict and why, a row a metric, the arms."""
    head = Text("gate: ")
    head.append(evidence.verdict.value, style=f"bold {STYLES.get(evidence.verdict, 'dim')}")
    head.append(f": {evidence.reason}")
    table = table_of("METRIC", "VALUE", "KNOWN TO BE", "BAR", "VERDICT", "PROMPTS", "CONTROL")
    for one in evidence.metrics:
        bar = "–" if one.bar is None else f"{'>=' if one.bar.is_floor else '<='} {one.bar.limit:g}"
        verdict = Text("–") if one.bar is None else Text(one.verdict.value, style=STYLES.get(one.verdict, ""))
        table.add_row(
            one.name.value,
            number(one.value),
            limits(one),
            bar,
            verdict,
            f"{one.samples}/{one.population}",
            number(one.control),
        )
    arms = Text(f"baseline   {evidence.baseline}\ncandidate  {evidence.candidate}")
    rates = Text(f"false pass <= {evidence.alpha:g}, false fail <= {evidence.beta:g}; {evidence.digest}", style="dim")
    return Group(head, "", table, "", arms, rates)
