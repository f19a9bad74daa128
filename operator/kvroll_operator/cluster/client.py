"""A thin client of the Kubernetes API: plain dicts in and out over `kubernetes.aio`'s transport, which knows kubeconfigs and tokens.

Whatever goes wrong with a request is an `ApiError` of one kind (`ApiProblem`): callers catch that one class and nothing else.
"""

import builtins
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from kubernetes.aio import client, config

FIELD_MANAGER = "kvroll-operator"
REQUEST_SECONDS = 5
"""Time-out of one request: shorter than a standby would wait before taking over, so that no late write of ours meets its first list."""
PAGE_OBJECTS = 500
MOST_RETRY_AFTER_SECONDS = 60.0
_EXPIRED = 3
"""Lists that may begin anew because their continue token expired, before it is an error."""

Json = dict[str, Any]


class ApiProblem(StrEnum):
    """What can become of a request that did not succeed."""

    UNREACHABLE = "Unreachable"  # no connection, cut, half a body, no answer in time, no credentials
    GARBLED = "Garbled"  # an answer, but not the API's JSON: a proxy's page, a body cut short
    OVERLOADED = "Overloaded"  # 429, 5xx: the same request may succeed later
    GONE = "Gone"  # 404, 410
    CONFLICT = "Conflict"  # 409: exists already, or changed
    FORBIDDEN = "Forbidden"  # 401, 403: RBAC, quota, Pod Security
    INVALID = "Invalid"  # 400, 413, 415, 422: this very request will never succeed


_BY_STATUS = {
    401: ApiProblem.FORBIDDEN,
    403: ApiProblem.FORBIDDEN,
    404: ApiProblem.GONE,
    408: ApiProblem.OVERLOADED,
    409: ApiProblem.CONFLICT,
    410: ApiProblem.GONE,
    429: ApiProblem.OVERLOADED,
}


class ApiError(RuntimeError):
    """A request did not succeed. `status` is the HTTP code, 0 where there was no answer; `reason` the API's own word, if it gave one."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        problem: ApiProblem | None = None,
        reason: str = "",
        retry_after_seconds: float = 0.0,
    ) -> None:
        said = f"the API server answered {status}: {message}" if status else f"no answer of the API server: {message}"
        super().__init__(said)
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.problem = problem if problem is not None else _problem_of(status)

    @property
    def is_stale(self) -> bool:
        """The world moved on since it was observed: gone, exists already, or changed."""
        return self.problem in (ApiProblem.GONE, ApiProblem.CONFLICT)

    @property
    def is_down(self) -> bool:
        """It says nothing of the object: the API server is away or has too much to do, so any other request would fare the same."""
        return self.problem in (ApiProblem.UNREACHABLE, ApiProblem.GARBLED, ApiProblem.OVERLOADED)


def _problem_of(status: int) -> ApiProblem:
    if status == 0:
        return ApiProblem.UNREACHABLE
    return _BY_STATUS.get(status) or (ApiProblem.INVALID if 400 <= status < 500 else ApiProblem.OVERLOADED)


def _ignore(method: str, problem: str) -> None:
    """Nobody counts."""


class Api:
    """One connection pool to one API server. `count` is told the method and the problem (empty: none) of every request."""

    def __init__(self, api_client: client.ApiClient, count: Callable[[str, str], None] = _ignore) -> None:
        self._client = api_client
        self._count = count

    @classmethod
    async def connect(cls, count: Callable[[str, str], None] = _ignore) -> "Api":
        """Uses the Pod's service account, or else the kubeconfig that KUBECONFIG names."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return cls(client.ApiClient(configuration), count)

    async def close(self) -> None:
        """Ends the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, path: str) -> Json:
        """Reads one object.

        Raises:
            ApiError: 404 if there is none.
        """
        return await self._request("GET", path)

    async def list(self, path: str, selector: str = "") -> list[Json]:
        """Reads a collection, page by page, as new as the last write: without a resourceVersion the API server answers from a quorum.

        Raises:
            ApiError: a page was not answered, or the pages expired again and again while they were read.
        """
        query = {"limit": str(PAGE_OBJECTS)} | ({"labelSelector": selector} if selector else {})
        for _ in range(_EXPIRED):
            try:
                return await self._pages(path, query)
            except ApiError as error:
                if error.status != 410:
                    raise
        raise ApiError(
            410, f"{path}: the list expired {_EXPIRED} times while it was read", problem=ApiProblem.OVERLOADED
        )

    async def _pages(self, path: str, query: Mapping[str, str]) -> builtins.list[Json]:
        items: builtins.list[Json] = []
        token = ""
        while True:
            page = await self._request("GET", path, {**query, "continue": token} if token else query)
            found, metadata = page.get("items"), page.get("metadata") or {}
            # An empty list is null in the answers of some servers.
            if not isinstance(found, builtins.list | None) or not isinstance(metadata, dict) or "items" not in page:
                raise ApiError(
                    0, f"{path}: expected a list of objects, found {_shown(page)}", problem=ApiProblem.GARBLED
                )
            items += found or []
            token = metadata.get("continue") or ""
            if not token:
                return items

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        """Creates one object; with `dry_run` it is only said whether it would be, and a field that the API does not know is an error.

        Raises:
            ApiError: 409 if the name is taken.
        """
        query = {"fieldManager": FIELD_MANAGER}
        if dry_run:
            query |= {"dryRun": "All", "fieldValidation": "Strict"}
        return await self._request("POST", path, query, body, "application/json")

    async def apply(self, path: str, body: Json) -> Json:
        """Server-side apply, as the owner of what we write."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, query, body, "application/apply-patch+yaml")

    async def patch(self, path: str, body: Json) -> Json:
        """Merge patch; a resourceVersion in its metadata makes it conditional."""
        return await self._request("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, "application/merge-patch+json")

    async def delete(
        self, path: str, *, uid: str, resource_version: str | None = None, grace_seconds: int | None = None
    ) -> None:
        """Deletes exactly that object.

        Raises:
            ApiError: 409 if it is another one by now, or changed.
        """
        preconditions = {"uid": uid} if resource_version is None else {"uid": uid, "resourceVersion": resource_version}
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._request("DELETE", path, {}, body, "application/json")

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str | None = None,
    ) -> Json:
        try:
            status, text, retry_after = await self._exchange(method, path, query, body, content_type)
            answer = _read(status, text, retry_after)
        except ApiError as error:
            self._count(method, error.problem)
            raise
        except Exception as error:
            # aiohttp, ssl, the resolver, the reader of the token and the exec plugins each have classes of their own,
            # and none of them tells more than that there is no answer.
            self._count(method, ApiProblem.UNREACHABLE)
            raise ApiError(0, f"{method} {path}: {type(error).__name__}: {error}"[:500]) from error
        self._count(method, "")
        return answer

    async def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Json | None, content_type: str | None
    ) -> tuple[int, bytes, str]:
        headers = {"Accept": "application/json"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        resource = f"{path}?{urlencode(query)}" if query else path
        serialized = await self._client.param_serialize(
            method, resource, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        response = await self._client.call_api(*serialized, _request_timeout=REQUEST_SECONDS)
        text: bytes = await response.read()  # type: ignore[no-untyped-call]
        return response.status, text, str(response.getheader("Retry-After") or "")  # type: ignore[no-untyped-call]


def _read(status: int, text: bytes, retry_after: str) -> Json:
    """The answer as JSON.

    Raises:
        ApiError: it is no success, or not an object of JSON.
    """
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        answer = None
    if 200 <= status <= 299:
        if not isinstance(answer, dict):
            raise ApiError(status, f"expected a JSON object, found {_shown(text)}", problem=ApiProblem.GARBLED)
        return answer
    said: Json = answer if isinstance(answer, dict) else {}
    details = said.get("details")
    seconds = _seconds(retry_after) or _seconds(details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    message = str(said.get("message") or _shown(text))[:500]
    raise ApiError(status, message, reason=str(said.get("reason") or ""), retry_after_seconds=seconds)


def _seconds(said: Any) -> float:
    """Seconds of a Retry-After, which is a number or a date; 0 where it is neither, and never more than is sane."""
    try:
        seconds = float(said)
    except (TypeError, ValueError):
        try:
            seconds = (parsedate_to_datetime(str(said)) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return 0.0
    return min(max(seconds, 0.0), MOST_RETRY_AFTER_SECONDS) if seconds == seconds else 0.0


def _shown(found: object) -> str:
    text = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
    return " ".join(text.split())[:200] or "nothing"
