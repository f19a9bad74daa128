"""Draws a budget: what a KV dtype costs, and how many sessions each weight dtype leaves room for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvroll_cli.commands.budget.ask import BudgetQuestion
from kvroll_cli.table import table_of
from kvroll_core.budget import Fit, Point, format_bytes
from kvroll_core.precision.formats import KV_FORMATS, WEIGHT_FORMATS

Fits = Mapping[tuple[str, str], Fit | str]
"""By weights and KV dtype: the answer, or why that pair has none."""


def document(asked: BudgetQuestion, found: Fit, fits: Fits) -> dict[str, Any]:
    """The asked precision on top, all others below; plain types, keys carry units."""
    ask, facts = found.ask, asked.shape.facts
    known = asked.weights_known
    others = [
        _line(fit, known=known, assumed=facts.assumed)
        if isinstance(fit, Fit)
        else {"weights": weights, "kv_cache": kv, "problem": fit}
        for (weights, kv), fit in fits.items()
    ]
    ranks = ask.ranks
    return {
        "model": {
            "family": facts.family,
            "attention": facts.attention,
            "source": facts.source,
            "assumed": facts.assumed,
            "is_bound": facts.assumed is not None,
            "derived": list(facts.derived),
            "ignored": list(facts.ignored),
            "notes": list(asked.notes),
        },
        "sessions": ask.sessions,
        "tokens": ask.tokens,
        "device_bytes": ask.device_bytes,
        "usable_bytes": found.usable_bytes,
        **_line(found, known=known, assumed=facts.assumed),
        "weights": asked.weights_name,
        "weights_source": asked.weights_source,
        "weights_bytes_active_per_token": _active(asked, found),
        "kv_cache_source": asked.kv_cache_source,
        "kv_bytes_per_token_one_scale": found.kv_bytes_per_token_one_scale
        and _whole(found.kv_bytes_per_token_one_scale),
        "windows": [
            {"window_tokens": w.window_tokens, "layers": w.layers, "kv_bytes_per_token": _whole(w.bytes_per_token)}
            for w in found.windows
        ],
        "block_tokens": ask.page_tokens,
        "kv_memory_bytes": ask.kv_memory_bytes,
        "kv_pool_tokens": found.pool_tokens,
        "kv_pool_sessions": found.concurrency,
        "ranks": {
            "tensor_parallel": ranks.tensor,
            "pipeline_parallel": ranks.pipeline,
            "data_parallel": ranks.data,
            "devices": ranks.devices,
            "weights_bytes": found.rank_weights_bytes if known else None,
            "kv_bytes_per_token": _whole(found.rank_kv_bytes_per_token),
            "kv_bytes_per_session": math.ceil(found.rank_kv_bytes_per_session),
            "total_bytes": math.ceil(found.rank_total_bytes) if known else None,
        },
        "precisions": others,
    }


def _active(asked: BudgetQuestion, found: Fit) -> int | None:
    """Bytes of weights that one token is multiplied with: all of them, but the experts that it is not routed to."""
    shape = asked.shape
    if not asked.weights_known or not shape.facts.weights_counted or not shape.matrix_elements:
        return None
    if asked.idle_bytes is not None:
        return math.ceil(found.weights_bytes - asked.idle_bytes)
    every = shape.matrix_elements + shape.plain_elements
    idle = shape.matrix_elements - shape.read_elements(1)
    return math.ceil(found.weights_bytes * (1 - idle / every))


def _whole(size: float) -> float:
    return int(size) if size == int(size) else size


def with_sweep(found: dict[str, Any], points: Sequence[Point]) -> dict[str, Any]:
    """The document with the curve of the asked precision."""
    curve = [{"sessions": p.sessions, "total_bytes": math.ceil(p.total_bytes)} for p in points]
    return {**found, "sweep": curve}


def _line(fit: Fit, *, known: bool, assumed: str | None) -> dict[str, Any]:
    found = {
        "weights": fit.ask.weights,
        "kv_cache": fit.ask.kv_cache,
        "weights_bytes": fit.weights_bytes if known else None,
        "activations_bytes": fit.activations_bytes,
        "kv_bytes_per_token": _whole(fit.kv_bytes_per_token),
        "kv_bytes_constant_per_session": _whole(fit.kv_bytes_constant_per_session),
        "kv_bytes_stored_per_session": math.ceil(fit.kv_bytes_stored),
        "kv_bytes_per_session": math.ceil(fit.kv_bytes_per_session),
        "kv_bytes_total": math.ceil(fit.kv_bytes_total),
        "total_bytes": math.ceil(fit.total_bytes) if known else None,
        "pages": fit.pages,
        "fits": fit.fits,
        "max_sessions": fit.max_sessions,
        "built": WEIGHT_FORMATS[fit.ask.weights].built and KV_FORMATS[fit.ask.kv_cache].built,
    }
    return {**found, "assumed": assumed} if assumed else found


def budget_view(asked: BudgetQuestion, found: Fit, fits: Fits) -> RenderableType:
    """The table, below it the asked precision in a sentence, and what was read, derived or left out."""
    weights = list(dict.fromkeys(w for w, _ in fits))
    has_room = found.usable_bytes is not None or found.ask.kv_memory_bytes is not None
    columns = [f"{_name(asked, w)}\n{_weights_size(asked, fits, w)}" for w in weights] if has_room else []
    ask = found.ask
    table = table_of("KV CACHE", "A TOKEN", "BESIDES", f"{ask.tokens} TOKENS", f"{ask.sessions} SESSIONS", *columns)
    for kv in dict.fromkeys(kv for _, kv in fits):
        row = [fits[w, kv] for w in weights]
        first = row[0]
        if isinstance(first, str):
            table.add_row(kv, Text(first, style="dim"), *[""] * (3 + len(columns)))
            continue
        sizes = (
            first.kv_bytes_per_token,
            first.kv_bytes_constant_per_session,
            first.kv_bytes_per_session,
            first.kv_bytes_total,
        )
        cells = [_sessions(fit) for fit in row] if columns else []
        table.add_row(kv if KV_FORMATS[kv].built else f"{kv} (not built)", *map(format_bytes, sizes), *cells)
    legend = (
        [Text(f"under each weight dtype: how many sessions of {ask.tokens} tokens fit", style="dim")] if columns else []
    )
    return Group(table, *legend, *_read(asked, found), verdict(asked, found))


def _name(asked: BudgetQuestion, weights: str) -> str:
    return asked.weights_name if asked.weights_fixed and weights == asked.ask.weights else weights


def _read(asked: BudgetQuestion, found: Fit) -> list[Text]:
    """What the figures rest on."""
    facts = asked.shape.facts
    bound = f"BOUND, NOT A FIGURE: {facts.family} is assumed to be {facts.assumed}" if facts.assumed else ""
    lines = [f"{facts.family}: {facts.attention} ({facts.source})"] if facts.family and not bound else []
    lines += (
        [f"KV dtype {asked.ask.kv_cache}: {asked.kv_cache_source}"] if asked.kv_cache_source.startswith("auto") else []
    )
    lines += [f"weights: {asked.weights_source}"] if asked.weights_fixed or not asked.weights_known else []
    lines += [
        f"{w.layers} layers keep at most {w.window_tokens} tokens: {format_bytes(w.bytes_per_token)} each"
        for w in found.windows
    ]
    if found.kv_bytes_per_token_one_scale not in (None, found.kv_bytes_per_token):
        lines.append(
            f"{asked.ask.kv_cache} with a scale for each token and head, as kvroll keeps it; with one for a tensor (vLLM, SGLang):"
            f" {format_bytes(found.kv_bytes_per_token_one_scale or 0)} a token"
        )
    if found.ask.ranks.devices > 1:
        lines.append(_ranks(asked, found))
    if found.pool_tokens is not None:
        lines.append(f"a pool of {format_bytes(found.ask.kv_memory_bytes or 0)} holds {found.pool_tokens} tokens")
    lines += [*facts.derived, *facts.ignored, *asked.notes]
    return ([Text(bound, style="red")] if bound else []) + [Text(line, style="dim") for line in lines]


def _ranks(asked: BudgetQuestion, found: Fit) -> str:
    ranks = found.ask.ranks
    weights = f"weights {format_bytes(found.rank_weights_bytes)}, " if asked.weights_known else ""
    return (
        f"each of {ranks.devices} devices (tp {ranks.tensor}, pp {ranks.pipeline}, dp {ranks.data}): {weights}"
        f"KV {format_bytes(found.rank_kv_bytes_per_token)} a token, {format_bytes(found.rank_kv_bytes_per_session)} a session"
    )


def verdict(asked: BudgetQuestion, fit: Fit) -> Text:
    """The asked precision in a sentence."""
    ask = fit.ask
    kv = f"{ask.kv_cache} KV {format_bytes(fit.kv_bytes_total)}"
    if not asked.weights_known:
        total = f"weights not counted; activations {format_bytes(fit.activations_bytes)} + {kv}"
    else:
        total = (
            f"{asked.weights_name} weights {format_bytes(fit.weights_bytes)} + activations"
            f" {format_bytes(fit.activations_bytes)} + {kv} = {format_bytes(fit.total_bytes)}"
        )
    if fit.max_sessions is None:
        return Text(total)
    if ask.kv_memory_bytes is not None:
        room = f"a KV pool of {format_bytes(ask.kv_memory_bytes)} on each device"
    else:
        room = (
            f"{format_bytes(fit.usable_bytes or 0)} ({format_bytes(ask.device_bytes or 0)} less"
            f" {ask.headroom_fraction:.0%} headroom)"
        )
    says = f"fits into {room}" if fit.fits else f"does not fit into {room}"
    return Text(f"{total}: {says}; at most {fit.max_sessions} sessions", style="green" if fit.fits else "red")


def _weights_size(asked: BudgetQuestion, fits: Fits, weights: str) -> str:
    found = next((fit for (w, _), fit in fits.items() if w == weights and isinstance(fit, Fit)), None)
    return format_bytes(found.weights_bytes) if found and asked.weights_known else "-"


def _sessions(fit: Fit | str) -> Text:
    if isinstance(fit, str) or not fit.max_sessions:
        return Text("-", style="red")
    return Text(str(fit.max_sessions), style="green" if fit.fits else "yellow")
