"""A thin client of the Kubernetes API: plain dicts in and out over `kubernetes.aio`'s transport, which knows kubeconfigs and tokens."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientError
from kubernetes.aio import client, config

FIELD_MANAGER = "kvroll-operator"
REQUEST_SECONDS = 5
"""Time-out of one request: shorter than a standby would wait before taking over (prototypes/rollout trap 20)."""

Json = dict[str, Any]


class ApiError(RuntimeError):
    """The API server refused a request; `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answered {status}: {message}")
        self.status = status

    @property
    def is_stale(self) -> bool:
        """The world moved on since it was observed: gone, exists already, or changed."""
        return self.status in (404, 409)


UNREACHABLE = (ApiError, OSError, TimeoutError, ClientError)
"""What a request raises when it is refused or gets no answer."""


class Api:
    """One connection pool to one API server."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self._client = api_client

    @classmethod
    async def connect(cls) -> "Api":
        """Uses the Pod's service account, or else the kubeconfig that KUBECONFIG names."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return cls(client.ApiClient(configuration))

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
        """Reads a collection, as new as the last write: without a resourceVersion the API server answers from a quorum."""
        query = {"labelSelector": selector} if selector else {}
        items: list[Json] = (await self._request("GET", path, query))["items"]
        return items

    async def create(self, path: str, body: Json) -> Json:
        """Creates one object.

        Raises:
            ApiError: 409 if the name is taken.
        """
        return await self._request("POST", path, {"fieldManager": FIELD_MANAGER}, body, "application/json")

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
        headers = {"Accept": "application/json"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        resource = f"{path}?{urlencode(query)}" if query else path
        serialized = await self._client.param_serialize(
            method, resource, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        response = await self._client.call_api(*serialized, _request_timeout=REQUEST_SECONDS)
        text = await response.read()  # type: ignore[no-untyped-call]
        answer: Json = json.loads(text) if text else {}
        if not 200 <= response.status <= 299:
            raise ApiError(response.status, str(answer.get("message", text))[:500])
        return answer
