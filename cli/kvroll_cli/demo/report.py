"""The report of precision changes, from what the clients received and what the operator counted: pure."""

import math
from dataclasses import dataclass
from typing import Any

from kvroll_cli.demo.load.transcript import Transcript, percentile

WAYS_ON = ("exact", "converted", "replayed", "finished", "checkpointed", "lost")


@dataclass(frozen=True)
class Window:
    """A stretch of the clients' clock. A token, a stall and the end of a session belong to the change in whose window they fall."""

    since_seconds: float = -math.inf
    until_seconds: float = math.inf

    def __contains__(self, seconds: float) -> bool:
        return self.since_seconds <= seconds < self.until_seconds


def change_report(
    *,
    source: dict[str, str],
    target: dict[str, str],
    roll_seconds: float,
    transcripts: list[Transcript],
    rollout_sessions: dict[str, int],
    kv_bytes_per_token: tuple[float, float],
    window: Window = Window(),
) -> dict[str, Any]:
    """One entry of `changes[]`.

    `rollout_sessions` is `status.rollout.sessions` of the pool: counts by way on, wire and unique bytes. Lost sessions are the larger of
    what the operator counted and what the clients saw end without a finish; tokens are counted by the clients alone.
    """
    ended = [t for t in transcripts if (t.ended_seconds if t.ended_seconds is not None else math.inf) in window]
    if window.until_seconds == math.inf:
        ended += [t for t in transcripts if t.ended_seconds is None]
    sessions = {"held": rollout_sessions.get("held", 0)} | {way: rollout_sessions.get(way, 0) for way in WAYS_ON}
    sessions["finished"] += rollout_sessions.get("finishedSoon", 0)
    sessions["lost"] = max(sessions["lost"], sum(t.is_lost for t in ended))
    stalls = [ms for t in transcripts for when, ms in t.stalls() if when in window]
    gaps = [ms for t in transcripts for when, ms in t.gaps() if when in window]
    firsts = [_first_arrivals(t) for t in transcripts]
    return {
        "from": source,
        "to": target,
        "roll_seconds": round(roll_seconds, 1),
        "sessions": sessions,
        "tokens": {
            "delivered": sum(when in window for first in firsts for when in first.values()),
            "duplicated": sum(_num_duplicated(t, window) for t in transcripts),
            "missing": sum(t.num_missing() for t in ended),
            "wrong_sessions": sum(t.is_wrong() for t in ended),
        },
        "stall_ms": {name: _rounded(percentile(stalls, p)) for name, p in (("p50", 50), ("p99", 99), ("max", 100))},
        "inter_token_ms": {"p50": _rounded(percentile(gaps, 50))},
        "kv": {
            "bytes_per_token_from": kv_bytes_per_token[0],
            "bytes_per_token_to": kv_bytes_per_token[1],
            "wire_bytes": rollout_sessions.get("wireBytes", 0),
            "unique_bytes": rollout_sessions.get("uniqueBytes", 0),
        },
    }


def faults(report: dict[str, Any]) -> list[str]:
    """Why this report is a failure, in words; empty when no session was lost and no token doubled, missing or wrong."""
    found = []
    for change in report["changes"]:
        name = f"{_words(change['from'])} -> {_words(change['to'])}"
        counts = {
            "sessions lost": change["sessions"]["lost"],
            "sessions whose tokens differ from the worker's record": change["tokens"]["wrong_sessions"],
        }
        counts |= {f"tokens {what}": change["tokens"][what] for what in ("duplicated", "missing")}
        found += [f"{name}: {count} {what}" for what, count in counts.items() if count]
        if change["tokens"]["delivered"] == 0:
            found.append(f"{name}: no token was delivered, so nothing was shown")
    return found


def shortfalls(report: dict[str, Any], least: list[dict[str, int]]) -> list[str]:
    """What was not shown: counts of `sessions` under the `least` of each change, in words."""
    return [
        f"{_words(change['from'])} -> {_words(change['to'])}: {change['sessions'][way]} sessions {way}, at least {count} expected"
        for change, wanted in zip(report["changes"], least, strict=True)
        for way, count in wanted.items()
        if change["sessions"][way] < count
    ]


def _words(precision: dict[str, str]) -> str:
    return "/".join(str(precision[part]) for part in ("weights", "kvCache") if part in precision)


def _first_arrivals(transcript: Transcript) -> dict[int, float]:
    first: dict[int, float] = {}
    for arrival in transcript.arrivals:
        first.setdefault(arrival.index, arrival.seconds)
    return first


def _num_duplicated(transcript: Transcript, window: Window) -> int:
    seen: set[int] = set()
    count = 0
    for arrival in transcript.arrivals:
        count += arrival.index in seen and arrival.seconds in window
        seen.add(arrival.index)
    return count


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
