"""The API server as far as the operator uses it: objects by path with UIDs and resource versions, no watch, no validation."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from kvroll_operator.cluster.client import Api, ApiError, Json


class FakeApi(Api):
    """`objects` by path; `refuse` maps a path to the status that every request about it gets."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.refuse: dict[str, int] = {}
        self.fault: Callable[[str, str], ApiError | None] = lambda method, path: None
        self.asked: list[tuple[str, str]] = []
        self._serial = 0

    async def get(self, path: str) -> Json:
        self._check(path)
        if path not in self.objects:
            raise ApiError(404, f"{path} not found")
        return self.objects[path]

    async def list(self, path: str, selector: str = "") -> list[Json]:
        self._check(path)
        wanted = dict(part.split("=", 1) for part in unquote(selector).split(",") if part)
        found = [o for at, o in self.objects.items() if at.startswith(f"{path}/")]
        return [o for o in found if wanted.items() <= (o["metadata"].get("labels") or {}).items()]

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        self._check(path, "POST dry run" if dry_run else "POST")
        if dry_run:
            return body
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            raise ApiError(409, f"{name} exists")
        return self._put(name, body)

    async def apply(self, path: str, body: Json) -> Json:
        self._check(path, "PATCH")
        path, _, part = path.partition("/status")
        found = self.objects.get(path, {})
        if not part:
            return self._put(path, {**found, **body, "metadata": {**found.get("metadata", {}), **body["metadata"]}})
        return self._put(path, {**found, "status": body["status"]})

    async def patch(self, path: str, body: Json) -> Json:
        self._check(path, "PATCH")
        path = path.removesuffix("/status")
        found = await self.get(path)
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "changed")
        return self._put(path, _merged(found, body))

    async def delete(
        self, path: str, *, uid: str, resource_version: str | None = None, grace_seconds: int | None = None
    ) -> None:
        self._check(path, "DELETE")
        metadata = (await self.get(path))["metadata"]
        if metadata["uid"] != uid or resource_version not in (None, metadata["resourceVersion"]):
            raise ApiError(409, "another or changed")
        del self.objects[path]

    def _check(self, path: str, method: str = "GET") -> None:
        self.asked.append((method, path))
        fault = self.fault(method, path)
        if fault is not None:
            raise fault
        if path in self.refuse:
            raise ApiError(self.refuse[path], "refused")

    def _put(self, path: str, body: Json) -> Json:
        self._serial += 1
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"uid": f"uid-{self._serial}", "creationTimestamp": now, "generation": 1, **body["metadata"]}
        self.objects[path] = {**body, "metadata": {**metadata, "resourceVersion": str(self._serial)}}
        return self.objects[path]


def _merged(found: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict) or not isinstance(found, dict):
        return patch
    out = {**found, **{key: _merged(found.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in out.items() if value is not None}
