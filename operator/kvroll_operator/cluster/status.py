"""Writes the status of a pool: the one place, only on change, progress numbers at most every other second."""

import time
from datetime import UTC, datetime
from typing import Any

from kvroll_operator.api import API_VERSION
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.cluster.client import Api, Json
from kvroll_operator.cluster.paths import Paths

PROGRESS_SECONDS = 2.0
_TIME = "lastTransitionTime"


class StatusWriter:
    """Remembers only when it last wrote."""

    def __init__(self, api: Api, paths: Paths) -> None:
        self._api = api
        self._paths = paths
        self._written_at = float("-inf")

    async def write(self, pool: Json, status: PoolStatus) -> bool:
        """Writes `status` unless the pool shows the same, or progress alone changed a moment ago. Says whether it wrote.

        Raises:
            ApiError: the API server refused.
        """
        shown: Json = pool.get("status") or {}
        wanted = with_times(status, shown.get("conditions") or [])
        if wanted == shown:
            return False
        if (
            without_progress(wanted) == without_progress(shown)
            and time.monotonic() - self._written_at < PROGRESS_SECONDS
        ):
            return False
        metadata = pool["metadata"]
        await self._api.apply(f"{self._paths.pools(metadata['name'])}/status", _body(metadata, wanted))
        self._written_at = time.monotonic()
        return True

    async def write_condition(self, pool: Json, kind: str, word: str, reason: str, message: str) -> bool:
        """Sets one condition and leaves the rest as it is shown: for a pool of which no more can be said. Says whether it wrote.

        Raises:
            ApiError: the API server refused.
        """
        shown: Json = pool.get("status") or {}
        metadata = pool["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said: Json = {"type": kind, "status": word, "reason": reason, "message": message[:2000]}
        said["observedGeneration"] = int(metadata.get("generation", 0))
        conditions: list[Json] = shown.get("conditions") or []
        old = next((c for c in conditions if c["type"] == kind), {})
        said[_TIME] = old.get(_TIME, now) if old.get("status") == word else now
        if old == said:
            return False
        wanted = {**shown, "conditions": [*(c for c in conditions if c["type"] != kind), said]}
        await self._api.apply(f"{self._paths.pools(metadata['name'])}/status", _body(metadata, wanted))
        return True


def _body(metadata: Json, status: Json) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "InferencePool",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
        "status": status,
    }


def with_times(status: PoolStatus, shown: list[Json]) -> Json:
    """The status as JSON; a condition keeps its transition time while its status word stays."""
    before = {c["type"]: c for c in shown}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted: Json = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    for condition in wanted["conditions"]:
        old = before.get(condition["type"], {})
        condition[_TIME] = old.get(_TIME, now) if old.get("status") == condition["status"] else now
    return wanted


def without_progress(status: Json) -> Json:
    """What is left of a status without its session numbers."""
    rollout = {key: value for key, value in status.get("rollout", {}).items() if key != "sessions"}
    groups: list[Any] = [
        {key: value for key, value in group.items() if key != "sessions"} for group in status.get("groups", [])
    ]
    gate = {key: value for key, value in status.get("gate", {}).items() if key != "samples"}
    rest = {key: value for key, value in status.items() if key not in ("sessions", "rollout", "groups", "plan", "gate")}
    return {**rest, "rollout": rollout, "groups": groups, "gate": gate}
