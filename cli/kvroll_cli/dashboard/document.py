"""What the page draws: pools with what is reckoned of them, and the newest events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kvroll_cli.commands.status.document import status_document
from kvroll_cli.commands.status.view import is_notable
from kvroll_cli.kube.snapshot import Snapshot

EVENTS_A_POOL = 25


def document(
    snapshots: Sequence[Snapshot], events: Sequence[dict[str, Any]], now: datetime, problem: str = ""
) -> dict[str, Any]:
    """`pools` with `notable` (types of conditions that are not as they should be) and `events`, newest first; `at` is the time of
    the look, `problem` why a part of it is missing or old.
    """
    return {
        "at": now.isoformat(timespec="seconds"),
        "problem": problem,
        "pools": [_pool(found, events, now) for found in snapshots],
    }


def _pool(found: Snapshot, events: Sequence[dict[str, Any]], now: datetime) -> dict[str, Any]:
    about = (found.namespace, found.name)
    own = [e for e in events if (e["metadata"]["namespace"], e["involvedObject"].get("name")) == about]
    return {
        **status_document(found, now),
        "notable": [c.type for c in found.status.conditions if is_notable(c)],
        "events": [_event(e) for e in reversed(own[-EVENTS_A_POOL:])],
    }


def _event(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": found.get("eventTime") or found.get("lastTimestamp") or "",
        "type": found.get("type") or "Normal",
        "reason": found.get("reason") or "",
        "message": found.get("message") or "",
    }
