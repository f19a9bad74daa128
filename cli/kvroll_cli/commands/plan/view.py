"""Draws a plan: what becomes of the sessions, what it costs and gains, what it rests on, and what it came to."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvroll_cli.commands.plan.planned import Planned
from kvroll_cli.commands.status.figures import duration, figures_table
from kvroll_cli.kube.progress import figures_of
from kvroll_cli.table import table_of
from kvroll_core.budget import format_bytes
from kvroll_operator.api.plan import NO_WAY, PlanBenefit, PlanCost, PlanKvFit, PlanRate, PlanStatus

_MEANS = {
    "FinishSoon": "end sooner than a move would take",
    "Exact": "move, token for token the same",
    "Convert": "move, KV cache transcoded",
    "Replay": "move as tokens, KV cache computed again",
    "Checkpoint": "are written to a store",
    "Finish": "end where they are; the drain waits",
    "Drop": "are lost, as the policy wants",
    NO_WAY: "have no way on; the drain waits",
}
_RATES = {
    "stepSeconds": ("a step", 1e3, "ms"),
    "prefillTokenSeconds": ("a prompt token", 1e3, "ms"),
    "moveBytesPerSecond": ("a move", 1e-6, "MB/s"),
    "startSeconds": ("a worker's start", 1.0, "s"),
}


def plan_view(found: Planned) -> RenderableType:
    """The whole of it."""
    plan = found.plan
    head = Text(f"{found.namespace}/{found.pool}  {found.before} -> {found.after}", style="bold")
    if plan.id:
        head.append(f"  rollout {plan.id} {found.phase}", style="not bold")
    parts: list[RenderableType] = [head]
    if plan.cost is None:
        parts.append(Text(_why_empty(found), style="dim"))
    else:
        parts += ["", _ways(plan.cost), "", *_lines(plan, plan.cost)]
    if plan.actual is not None:
        is_final = plan.actual.seconds is not None
        parts += ["", figures_table(figures_of(plan.cost, plan.actual, None, is_final=is_final))]
    parts += [Text(f"{b.reason}: {b.message}" if b.message else b.reason, style="red") for b in plan.blockers]
    parts += [Text(f"note: {warning}", style="yellow") for warning in plan.warnings]
    return Group(*parts)


def _why_empty(found: Planned) -> str:
    if found.plan.id:
        return "no price: a pool's first rollout, or no worker of the old revision answers"
    return "the pool runs this already: nothing would roll"


def _ways(cost: PlanCost) -> Table:
    table = table_of("WAY ON", "SESSIONS", "BYTES", "TOKENS", "WHAT THEY DO")
    for column in table.columns[2:4]:
        column.justify = "right"
    for way in cost.ways:
        moved = format_bytes(way.bytes) if way.bytes else "-"
        table.add_row(way.way, str(way.sessions), moved, str(way.tokens or "-"), _MEANS.get(way.way, ""))
    moved, tokens = format_bytes(cost.bytes_to_move), str(cost.tokens_to_replay)
    again = cost.held - cost.sessions
    about = f"{cost.sessions} sessions held now" + (f", {again} of them found by a second drain" if again > 0 else "")
    table.add_row("all", str(cost.held), moved, tokens, about, style="bold")
    return table


def _lines(plan: PlanStatus, cost: PlanCost) -> list[Text]:
    lines = [
        Text(
            f"cost: {cost.groups} groups in about {_time(cost)}; {cost.surge_devices} surge devices, "
            f"{cost.device_seconds_idle} device-seconds idle"
        )
    ]
    if plan.benefit is not None:
        lines.append(_benefit(plan.benefit))
    if plan.kv_fit is not None:
        lines.append(_fit(plan.kv_fit))
    lines.append(Text("rates: " + ", ".join(_rate(rate) for rate in plan.rates), style="dim"))
    return lines


def _time(cost: PlanCost) -> str:
    if cost.seconds_low is None or cost.seconds_high is None:
        return duration(cost.seconds)
    return f"{duration(cost.seconds_low)} to {duration(cost.seconds_high)}, as the workers' rates differ"


def _benefit(gain: PlanBenefit) -> Text:
    return Text(
        f"gain: a step reads {gain.bytes_per_step_ratio:.2f} x the bytes"
        f" (weights {format_bytes(gain.weights_bytes_before)} -> {format_bytes(gain.weights_bytes_after)},"
        f" KV {format_bytes(gain.kv_bytes_before)} -> {format_bytes(gain.kv_bytes_after)}; {gain.basis.lower()})"
    )


def _fit(fit: PlanKvFit) -> Text:
    if not fit.fits:
        return Text("KV fit: no", style="red")
    return Text(
        f"KV fit: {fit.pages_held} pages held; {fit.pages_before} -> {fit.pages_after} pages,"
        f" {fit.sessions_before} -> {fit.sessions_after} sessions of this length"
    )


def _rate(rate: PlanRate) -> str:
    what, scale, unit = _RATES.get(rate.name, (rate.name, 1.0, ""))
    spread = "" if rate.low is None or rate.high is None else f", {rate.low * scale:g} to {rate.high * scale:g}"
    return f"{what} {rate.value * scale:g} {unit} ({rate.source.lower()}{spread})"
