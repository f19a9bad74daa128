"""The report of a precision change, from what the clients received and what the operator counted: pure."""

from typing import Any

from kvroll_cli.demo.transcript import Transcript, percentile

WAYS_ON = ("exact", "converted", "replayed", "finished", "checkpointed", "lost")


def change_report(
    *,
    source: dict[str, str],
    target: dict[str, str],
    roll_seconds: float,
    transcripts: list[Transcript],
    rollout_sessions: dict[str, int],
    kv_bytes_per_token: tuple[float, float],
) -> dict[str, Any]:
    """One entry of `changes[]`.

    `rollout_sessions` is `status.rollout.sessions` of the pool: counts by way on, wire and unique bytes. Lost sessions are the larger of
    what the operator counted and what the clients saw end without a finish; tokens are counted by the clients alone.
    """
    lost_at_clients = sum(t.is_lost for t in transcripts)
    sessions = {"held": rollout_sessions.get("held", 0)} | {way: rollout_sessions.get(way, 0) for way in WAYS_ON}
    sessions["finished"] += rollout_sessions.get("finishedSoon", 0)
    sessions["lost"] = max(sessions["lost"], lost_at_clients)
    stalls = [ms for t in transcripts for ms in t.stalls_ms()]
    gaps = [ms for t in transcripts for ms in t.gaps_ms()]
    return {
        "from": source,
        "to": target,
        "roll_seconds": round(roll_seconds, 1),
        "sessions": sessions,
        "tokens": {
            "delivered": sum(len({a.index for a in t.arrivals}) for t in transcripts),
            "duplicated": sum(t.num_duplicated() for t in transcripts),
            "missing": sum(t.num_missing() for t in transcripts),
            "wrong_sessions": sum(t.is_wrong() for t in transcripts),
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
        name = f"{change['from']} -> {change['to']}"
        counts = {
            "sessions lost": change["sessions"]["lost"],
            "sessions whose tokens differ from the worker's record": change["tokens"]["wrong_sessions"],
        }
        counts |= {f"tokens {what}": change["tokens"][what] for what in ("duplicated", "missing")}
        found += [f"{name}: {count} {what}" for what, count in counts.items() if count]
        if change["tokens"]["delivered"] == 0:
            found.append(f"{name}: no token was delivered, so nothing was shown")
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
