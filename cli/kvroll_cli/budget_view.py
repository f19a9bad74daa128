"""Reckons and draws what fits into a worker's memory at every precision that is built."""

from dataclasses import dataclass, replace
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvroll_cli.status_view import table_of
from kvroll_core.budget import Budget, BudgetError, BudgetRequest, ModelShape, format_bytes, plan_budget
from kvroll_core.formats import KV_FORMATS, WEIGHT_FORMATS


@dataclass(frozen=True)
class Line:
    """One precision: its budget, or why it does not fit."""

    weights: str
    kv_cache: str
    budget: Budget | None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain types; keys carry units."""
        precision = {"weights": self.weights, "kvCache": self.kv_cache}
        if self.budget is None:
            return {**precision, "fits": False, "problem": self.problem}
        return {
            **precision,
            "fits": True,
            "weightsBytes": self.budget.weights_bytes,
            "activationsBytes": self.budget.activations_bytes,
            "kvTokenBytes": self.budget.kv_token_bytes,
            "kvBytes": self.budget.kv_bytes,
            "pages": self.budget.pages,
            "tokens": self.budget.tokens,
            "sessionsAtMaxLen": self.budget.sessions_at_max_len,
        }


def lines(shape: ModelShape, request: BudgetRequest, weights: str | None, kv_cache: str | None) -> list[Line]:
    """Every built precision, or those that have the given words.

    Raises:
        FormatNotBuiltError, UnknownFormatError: a given word that this version cannot run.
    """
    of_weights = [weights] if weights else [name for name, dtype in WEIGHT_FORMATS.items() if dtype.built]
    of_kv = [kv_cache] if kv_cache else [name for name, dtype in KV_FORMATS.items() if dtype.built]
    return [_line(shape, replace(request, weights=w, kv_cache=k)) for w in of_weights for k in of_kv]


def _line(shape: ModelShape, request: BudgetRequest) -> Line:
    try:
        return Line(request.weights, request.kv_cache, plan_budget(shape, request))
    except BudgetError as error:
        return Line(request.weights, request.kv_cache, None, str(error))


def budget_table(found: list[Line]) -> RenderableType:
    """One row a precision."""
    table = table_of("WEIGHTS", "KV", "WEIGHT BYTES", "ACTIVATIONS", "KV A TOKEN", "KV PAGES", "TOKENS", "SESSIONS")
    for line in found:
        if line.budget is None:
            table.add_row(line.weights, line.kv_cache, Text("does not fit", style="red"), *[""] * 5)
            continue
        budget = line.budget
        sizes = (budget.weights_bytes, budget.activations_bytes, budget.kv_token_bytes)
        counts = (budget.pages, budget.tokens, budget.sessions_at_max_len)
        table.add_row(line.weights, line.kv_cache, *map(format_bytes, sizes), *map(str, counts))
    return table
