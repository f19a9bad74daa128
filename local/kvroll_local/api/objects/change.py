"""What one request asks to be written."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class How(Enum):
    """The ways to change an object."""

    UPDATE = "update"
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Unknown(Enum):
    """What to do with fields that the schema does not know."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


@dataclass(frozen=True)
class Request:
    """How a body is meant. `subresource` is "" or "status"; `warnings` collects what the client should be told."""

    how: How = How.UPDATE
    subresource: str = ""
    manager: str = ""
    force: bool = False
    dry_run: bool = False
    unknown: Unknown = Unknown.WARN
    warnings: list[str] = field(default_factory=list)


def owned(body: dict[str, Any], subresource: str) -> dict[str, Any]:
    """The fields that an applied configuration claims."""
    if subresource == "status":
        return {"status": body.get("status", {})}
    metadata = body.get("metadata") or {}
    names = ("labels", "annotations", "finalizers", "ownerReferences")
    claimed = {key: metadata[key] for key in names if key in metadata}
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "status", "metadata")}
    return rest | ({"metadata": claimed} if claimed else {})
