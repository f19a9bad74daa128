"""The cells of a row, and how kubectl prints ages."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]


def cell(column: Json, o: Json) -> Any:
    """What a column shows of an object; None where it has nothing there."""
    path = column["jsonPath"]
    if not path.startswith("."):
        return _MADE[path](o)
    value: Any = o
    for step in re.findall(r"[^.]+", path):
        value = value.get(step) if isinstance(value, dict) else None
    if column["type"] == "date":
        return age(value) if isinstance(value, str) else "<none>"
    return value


def age(stamp: str) -> str:
    """As kubectl writes it: 5s, 3m12s, 4h, 6d."""
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(stamp.replace("Z", "+00:00"))).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    return f"{days}d" if days < 730 else f"{days // 365}y" + (f"{days % 365}d" if days % 365 else "")


def _statuses(o: Json) -> list[Json]:
    found: list[Json] = (o.get("status") or {}).get("containerStatuses") or []
    return found


def _ready(o: Json) -> str:
    return f"{sum(bool(s.get('ready')) for s in _statuses(o))}/{len(o['spec']['containers'])}"


def _restarts(o: Json) -> str:
    return str(sum(s.get("restartCount", 0) for s in _statuses(o)))


def _pod_status(o: Json) -> str:
    if "deletionTimestamp" in o["metadata"]:
        return "Terminating"
    status = o.get("status") or {}
    for container in _statuses(o):
        state = container.get("state") or {}
        if reason := (state.get("waiting") or state.get("terminated") or {}).get("reason"):
            return str(reason)
    return str(status.get("reason") or status.get("phase", "Unknown"))


def _event_object(o: Json) -> str:
    about = o.get("involvedObject") or o.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_message(o: Json) -> str:
    return str(o.get("message") or o.get("note") or "").strip()


def _last_seen(o: Json) -> str:
    stamp = (
        (o.get("series") or {}).get("lastObservedTime")
        or o.get("lastTimestamp")
        or o.get("eventTime")
        or o["metadata"]["creationTimestamp"]
    )
    return age(stamp)


_MADE: dict[str, Callable[[Json], str]] = {
    "ready": _ready, "restarts": _restarts, "status": _pod_status, "object": _event_object, "message": _event_message,
    "last_seen": _last_seen,
}  # fmt: skip
