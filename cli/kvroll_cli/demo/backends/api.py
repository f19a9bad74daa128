"""The same objects by the API itself, for machines without kubectl: the embedded back end needs no program but ours."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import config as kube_config

from kvroll_cli.demo.backends.objects import BackendError, Object

_PLACES = {
    "kvpool": "apis/kvroll.dev/v1alpha1/namespaces/{}/kvpools",
    "kvdrain": "apis/kvroll.dev/v1alpha1/namespaces/{}/kvdrains",
    "controllerrevision": "apis/apps/v1/namespaces/{}/controllerrevisions",
    "configmap": "api/v1/namespaces/{}/configmaps",
    "pod": "api/v1/namespaces/{}/pods",
}
_KINDS = {
    "InferencePool": "kvpool",
    "WorkerDrain": "kvdrain",
    "ControllerRevision": "controllerrevision",
    "ConfigMap": "configmap",
    "Pod": "pod",
}
_MANAGER = "kvroll-demo"
_TIMEOUT_SECONDS = 30

# Half of the client has types, and those say `object`; the border is here.
config: Any = kube_config


class DemoApi:
    """The objects of one namespace behind a kubeconfig. A call takes a thread, not the event loop."""

    look_seconds = 0.5

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self._api: Any = config.new_client_from_config(os.fspath(kubeconfig))

    async def apply(self, *objects: Object) -> None:
        for one in objects:
            asked = {"fieldManager": _MANAGER, "force": "true", "fieldValidation": "Strict"}
            await self._call(
                "PATCH", self._path(_KINDS[one["kind"]], one["metadata"]["name"]), asked, one, "apply-patch+yaml"
            )

    async def get(self, kind: str, name: str) -> Object:
        return await self._call("GET", self._path(kind, name), absent={})

    async def list(self, kind: str, selector: str = "") -> list[Object]:
        asked = {"labelSelector": selector} if selector else {}
        return list((await self._call("GET", self._path(kind), asked)).get("items", ()))

    async def patch(self, kind: str, name: str, change: Object) -> None:
        await self._call("PATCH", self._path(kind, name), {"fieldManager": _MANAGER}, change, "merge-patch+json")

    async def scale(self, kind: str, name: str, replicas: int) -> None:
        change = {"spec": {"replicas": replicas}}
        await self._call("PATCH", f"{self._path(kind, name)}/scale", {}, change, "merge-patch+json")

    async def delete(self, kind: str, name: str, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        await self._call("DELETE", self._path(kind, name), absent={})
        while await self.get(kind, name):
            if time.monotonic() > deadline:
                raise BackendError(f"expected {kind}/{name} to be gone {timeout_seconds:g} s after its deletion")
            await asyncio.sleep(self.look_seconds)

    async def version(self) -> str:
        """What the server says of itself."""
        return str((await self._call("GET", "version"))["gitVersion"])

    def _path(self, kind: str, name: str = "") -> str:
        place = _PLACES[kind].format(self.namespace)
        return f"{place}/{name}" if name else place

    async def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content: str = "json",
        absent: Object | None = None,
    ) -> Object:
        return await asyncio.to_thread(self._request, method, path, query or {}, body, content, absent)

    def _request(
        self, method: str, path: str, query: dict[str, str], body: Object | None, content: str, absent: Object | None
    ) -> Object:
        headers = {"Accept": "application/json", "Content-Type": f"application/{content}"}
        asked = self._api.param_serialize(
            method,
            f"/{path}",
            query_params=list(query.items()),
            header_params=headers,
            # Text, because the client writes no JSON under the content type of an apply; JSON is YAML.
            body=json.dumps(body) if body is not None and content.endswith("yaml") else body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._api.call_api(*asked, _request_timeout=_TIMEOUT_SECONDS)
            answer.read()
        except urllib3.exceptions.HTTPError as error:
            raise BackendError(f"the API server does not answer `{method} {path}`: {error}") from error
        if answer.status == 404 and absent is not None:
            return absent
        if not 200 <= answer.status < 300:
            raise BackendError(f"`{method} {path}` was answered {answer.status}: {_words(answer.data)}")
        return dict(json.loads(answer.data))


def _words(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:500]
