"""Draws the revisions of a pool: every precision it had, which one is the last good one, and which failed."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvroll_cli.table import table_of
from kvroll_core.plan import RolloutRecord

REVISION_LABEL = "kvroll.dev/revision"


def rows(revisions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One dict a ControllerRevision, oldest first: revision, precision, image, plan and the marks `stable` and
    `failed`.
    """
    records = [RolloutRecord.from_annotations(r["metadata"].get("annotations") or {}) for r in revisions]
    last_good = max((record.stable for record in records), default=0)
    found = []
    for revision, record in zip(revisions, records, strict=True):
        content = json.loads(revision["data"]["content"])
        found.append(
            {
                "number": revision["revision"],
                "revision": revision["metadata"]["labels"][REVISION_LABEL],
                "weights": content["precision"]["weights"],
                "kvCache": content["precision"]["kvCache"],
                "image": content.get("engine", {}).get("image", ""),
                "rollout": record.plan.id if record.plan else "",
                "reason": record.plan.reason.value if record.plan else "",
                "startedAt": _time(record.plan.started_at) if record.plan else "",
                "stable": bool(record.stable) and record.stable == last_good,
                "failed": record.pin.reason if record.pin else "",
                "failedRollout": record.pin.plan if record.pin else "",
            }
        )
    return found


def failed_rollout(revisions: Sequence[dict[str, Any]]) -> str | None:
    """Id of the newest rollout that failed or was ended and is still held against its revision."""
    failed = [row for row in rows(revisions) if row["failed"]]
    return str(failed[-1]["failedRollout"]) if failed else None


def history(revisions: Sequence[dict[str, Any]]) -> RenderableType:
    """One row a revision."""
    if not revisions:
        return Text("no revision yet")
    table = table_of("NUMBER", "REVISION", "WEIGHTS", "KV", "ROLLOUT", "REASON", "STARTED", "MARK", "IMAGE")
    for row in rows(revisions):
        mark = (
            Text("stable", style="green")
            if row["stable"]
            else Text(f"failed: {row['failed']}" if row["failed"] else "", style="red")
        )
        words = ("revision", "weights", "kvCache", "rollout", "reason", "startedAt")
        table.add_row(str(row["number"]), *(row[word] for word in words), mark, row["image"])
    return table


def _time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
