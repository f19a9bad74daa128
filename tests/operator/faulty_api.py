"""The API server in memory, with requests that fail before or after they took effect."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kvroll_operator.cluster.client import ApiError, ApiProblem, Json
from tests.operator.fake_api import FakeApi

Result = TypeVar("Result")
STATUS = {
    ApiProblem.UNREACHABLE: 0,
    ApiProblem.GARBLED: 200,
    ApiProblem.OVERLOADED: 429,
    ApiProblem.GONE: 410,
    ApiProblem.CONFLICT: 409,
    ApiProblem.FORBIDDEN: 403,
    ApiProblem.INVALID: 422,
}


def failure(problem: ApiProblem) -> ApiError:
    return ApiError(STATUS[problem], "injected", problem=problem)


def kind_of(method: str, path: str) -> str:
    """`GET kvpools/*`: the method, the resource, and whether one object or the status of one is meant."""
    parts = path.partition("/namespaces/")[2].split("/")[1:]
    return f"{method} {'/'.join([parts[0], *('*' for _ in parts[1:2]), *parts[2:]])}"


class FaultyApi(FakeApi):
    """`decide` says for a kind of request what becomes of it: nothing, or a problem before or after it took effect."""

    def __init__(self) -> None:
        super().__init__()
        self.decide: Callable[[str], tuple[ApiProblem, bool] | None] = lambda kind: None
        self.kinds: set[str] = set()

    async def _faulty(self, method: str, path: str, act: Callable[[], Awaitable[Result]]) -> Result:
        kind = kind_of(method, path)
        self.kinds.add(kind)
        decided = self.decide(kind)
        if decided is not None and not decided[1]:
            raise failure(decided[0])
        found = await act()
        if decided is not None:
            raise failure(decided[0])
        return found

    async def get(self, path: str) -> Json:
        return await self._faulty("GET", path, lambda: FakeApi.get(self, path))

    async def list(self, path: str, selector: str = "") -> list[Json]:
        return await self._faulty("LIST", path, lambda: FakeApi.list(self, path, selector))

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        method = "TRY" if dry_run else "POST"
        return await self._faulty(method, path, lambda: FakeApi.create(self, path, body, dry_run=dry_run))

    async def apply(self, path: str, body: Json) -> Json:
        return await self._faulty("APPLY", path, lambda: FakeApi.apply(self, path, body))

    async def patch(self, path: str, body: Json) -> Json:
        return await self._faulty("PATCH", path, lambda: FakeApi.patch(self, path, body))

    async def delete(self, path: str, **request: Any) -> None:
        await self._faulty("DELETE", path, lambda: FakeApi.delete(self, path, **request))
