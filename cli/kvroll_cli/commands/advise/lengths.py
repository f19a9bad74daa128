"""Traces that tell lengths and times and no prompts: BurstGPT's CSV, and what vLLM's benchmark writes."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from kvroll_core.advise import TracedRequest, TraceError

_BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
_VLLM = ("input_lens", "output_lens")


def requests_of_lengths(text: str, seconds_per_token: float | None) -> list[TracedRequest] | None:
    """The requests of such a file; None of another one.

    BurstGPT (HPMLL/BurstGPT): a header with `Timestamp` (seconds), `Request tokens`, `Response tokens`, later ones `Elapsed time` too.
    vLLM (`vllm bench serve --save-result --save-detailed`): one object with `input_lens`, `output_lens`, `start_times`, `ttfts`, `itls`.

    Raises:
        TraceError: it is such a file and lacks what is needed; the line is named where there is one.
    """
    head = text.lstrip().split("\n", 1)[0]
    if all(name in head for name in _BURSTGPT):
        return _burstgpt(text, seconds_per_token)
    if not text.lstrip().startswith("{") or not all(f'"{name}"' in text for name in _VLLM):
        return None
    try:
        told = json.loads(text)
    except ValueError:
        return None  # JSON lines
    return _vllm(told, seconds_per_token)


def _burstgpt(text: str, seconds_per_token: float | None) -> list[TracedRequest]:
    found = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text.lstrip())), 2):
        try:
            prompt, output = int(row["Request tokens"]), int(row["Response tokens"])
            arrival, elapsed = float(row["Timestamp"]), row.get("Elapsed time")
            duration = float(elapsed) if elapsed else None
        except (ValueError, TypeError) as error:
            raise TraceError(f"line {number}: expected numbers in {', '.join(_BURSTGPT)}, found {error}") from error
        if output:  # a failed request has none
            found.append(_request(arrival, duration, prompt, output, seconds_per_token))
    return found


def _vllm(told: Mapping[str, Any], seconds_per_token: float | None) -> list[TracedRequest]:
    starts, sizes = told.get("start_times"), (told["input_lens"], told["output_lens"])
    if not isinstance(starts, list):
        raise TraceError(
            "expected start_times, found none: vllm bench serve --save-result --save-detailed of a version that writes them"
        )
    ttfts, itls = told.get("ttfts"), told.get("itls")
    try:
        durations = [float(first) + sum(rest) for first, rest in zip(ttfts or (), itls or (), strict=True)] or [
            None
        ] * len(starts)
        rows = list(zip(starts, durations, *sizes, strict=True))
        return [_request(float(a), d, int(p), int(o), seconds_per_token) for a, d, p, o in rows if o]
    except (ValueError, TypeError) as error:
        raise TraceError(
            f"expected lists of numbers of one length in start_times, input_lens, output_lens, ttfts and itls: {error}"
        ) from error


def _request(
    arrival: float, duration: float | None, prompt: int, output: int, seconds_per_token: float | None
) -> TracedRequest:
    if duration is None and seconds_per_token is not None:
        duration = output * seconds_per_token
    return TracedRequest(arrival, duration, prompt, output, ())
