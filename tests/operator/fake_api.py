"""The API server as far as the gate uses it: objects by path, no watch, no validation."""

from typing import Any
from urllib.parse import unquote

from kvroll_operator.cluster.client import Api, ApiError, Json


class FakeApi(Api):
    """`objects` by path; `refuse` maps a path to the status that every request about it gets."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.refuse: dict[str, int] = {}

    def _check(self, path: str) -> None:
        if path in self.refuse:
            raise ApiError(self.refuse[path], "refused")

    async def get(self, path: str) -> Json:
        self._check(path)
        if path not in self.objects:
            raise ApiError(404, f"{path} not found")
        return self.objects[path]

    async def list(self, path: str, selector: str = "") -> list[Json]:
        self._check(path)
        wanted = dict(part.split("=", 1) for part in unquote(selector).split(",") if part)
        found = [o for at, o in self.objects.items() if at.startswith(f"{path}/")]
        return [o for o in found if wanted.items() <= o["metadata"].get("labels", {}).items()]

    async def create(self, path: str, body: Json) -> Json:
        self._check(path)
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            raise ApiError(409, f"{name} exists")
        self.objects[name] = body
        return body

    async def apply(self, path: str, body: Json) -> Json:
        self._check(path)
        metadata = {"uid": f"uid of {path}", **body["metadata"]}
        self.objects[path] = {**self.objects.get(path, {}), **body, "metadata": metadata}
        return self.objects[path]

    async def patch(self, path: str, body: Json) -> Json:
        self._check(path)
        found: dict[str, Any] = await self.get(path)
        found["spec"] = {**found.get("spec", {}), **body.get("spec", {})}
        return found

    async def delete(
        self, path: str, *, uid: str, resource_version: str | None = None, grace_seconds: int | None = None
    ) -> None:
        self._check(path)
        assert self.objects[path]["metadata"].get("uid") == uid
        del self.objects[path]
