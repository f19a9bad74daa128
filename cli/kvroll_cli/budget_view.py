"""Draws a budget: what a KV dtype costs, and how many sessions each weight dtype leaves room for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvroll_cli.table import table_of
from kvroll_core.budget import Fit, Point, format_bytes
from kvroll_core.formats import KV_FORMATS, WEIGHT_FORMATS

Fits = Mapping[tuple[str, str], Fit | str]
"""By weights and KV dtype: the answer, or why that pair has none."""


def document(asked: Fit, fits: Fits) -> dict[str, Any]:
    """The asked precision on top, all others below; plain types, keys carry units."""
    ask = asked.ask
    head = {"sessions": ask.sessions, "tokens": ask.tokens, "device_bytes": ask.device_bytes}
    others = [
        _line(found) if isinstance(found, Fit) else {"weights": weights, "kv_cache": kv, "problem": found}
        for (weights, kv), found in fits.items()
    ]
    return {**head, "usable_bytes": asked.usable_bytes, **_line(asked), "precisions": others}


def with_sweep(found: dict[str, Any], points: Sequence[Point]) -> dict[str, Any]:
    """The document with the curve of the asked precision."""
    curve = [{"sessions": p.sessions, "total_bytes": math.ceil(p.total_bytes)} for p in points]
    return {**found, "sweep": curve}


def _line(fit: Fit) -> dict[str, Any]:
    token = fit.kv_bytes_per_token
    return {
        "weights": fit.ask.weights,
        "kv_cache": fit.ask.kv_cache,
        "weights_bytes": fit.weights_bytes,
        "activations_bytes": fit.activations_bytes,
        "kv_bytes_per_token": int(token) if token == int(token) else token,
        "kv_bytes_per_session": math.ceil(fit.kv_bytes_per_session),
        "kv_bytes_total": math.ceil(fit.kv_bytes_total),
        "total_bytes": math.ceil(fit.total_bytes),
        "pages": fit.pages,
        "fits": fit.fits,
        "max_sessions": fit.max_sessions,
        "built": WEIGHT_FORMATS[fit.ask.weights].built and KV_FORMATS[fit.ask.kv_cache].built,
    }


def budget_view(asked: Fit, fits: Fits) -> RenderableType:
    """The table, and below it the asked precision in a sentence."""
    weights = list(dict.fromkeys(w for w, _ in fits))
    columns = [f"{w}\n{_weights_size(fits, w)}" for w in weights] if asked.usable_bytes is not None else []
    ask = asked.ask
    table = table_of("KV CACHE", "A TOKEN", f"{ask.tokens} TOKENS", f"{ask.sessions} SESSIONS", *columns)
    for kv in dict.fromkeys(kv for _, kv in fits):
        row = [fits[w, kv] for w in weights]
        first = row[0]
        if isinstance(first, str):
            table.add_row(kv, Text(first, style="dim"), *[""] * (2 + len(columns)))
            continue
        sizes = (first.kv_bytes_per_token, first.kv_bytes_per_session, first.kv_bytes_total)
        cells = [_sessions(fit) for fit in row] if columns else []
        table.add_row(kv if KV_FORMATS[kv].built else f"{kv} (not built)", *map(format_bytes, sizes), *cells)
    legend = Text(f"under each weight dtype: how many sessions of {ask.tokens} tokens fit", style="dim")
    return Group(table, legend, verdict(asked)) if columns else Group(table, verdict(asked))


def verdict(fit: Fit) -> Text:
    """The asked precision in a sentence."""
    ask = fit.ask
    total = (
        f"{ask.weights} weights {format_bytes(fit.weights_bytes)} + activations {format_bytes(fit.activations_bytes)}"
        f" + {ask.kv_cache} KV {format_bytes(fit.kv_bytes_total)} = {format_bytes(fit.total_bytes)}"
    )
    if fit.usable_bytes is None or fit.max_sessions is None or ask.device_bytes is None:
        return Text(total)
    room = (
        f"{format_bytes(fit.usable_bytes)} ({format_bytes(ask.device_bytes)} less {ask.headroom_fraction:.0%} headroom)"
    )
    says = f"fits into {room}" if fit.fits else f"does not fit into {room}"
    return Text(f"{total}: {says}; at most {fit.max_sessions} sessions", style="green" if fit.fits else "red")


def _weights_size(fits: Fits, weights: str) -> str:
    found = next((fit for (w, _), fit in fits.items() if w == weights and isinstance(fit, Fit)), None)
    return format_bytes(found.weights_bytes) if found else "-"


def _sessions(fit: Fit | str) -> Text:
    if isinstance(fit, str) or not fit.max_sessions:
        return Text("-", style="red")
    return Text(str(fit.max_sessions), style="green" if fit.fits else "yellow")
