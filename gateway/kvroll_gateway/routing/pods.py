"""Follows the worker Pods of one namespace."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog
from kubernetes.aio import client, config, watch

from kvroll_gateway.routing.workers import POOL_LABEL, WorkerTarget, pod_target

_WATCH_SECONDS = 5  # then it begins again where it was: nothing else tells an idle watch from a dead one
_ANSWER_SECONDS = 3
_MAX_BACKOFF_SECONDS = 5.0

log = structlog.get_logger(__name__)


async def load_config() -> None:
    """In-cluster credentials where there are some, else the kubeconfig that KUBECONFIG names."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await config.load_kube_config()  # type: ignore[no-untyped-call]


async def follow_pods(
    namespace: str, changed: Callable[[list[WorkerTarget]], None], failed: Callable[[], None] = lambda: None
) -> None:
    """Calls `changed` with all workers after every change, until cancelled, and `failed` whenever the API server is of no use.

    Lists, then watches from the list's version on; an expired version (410), a broken stream or an API server that does not answer in
    `_ANSWER_SECONDS` means: list again. Until that succeeds the last known workers stay.
    """
    backoff_seconds = 0.2
    async with client.ApiClient() as api:
        core = client.CoreV1Api(api)
        while True:
            try:
                await _list_and_watch(core, api, namespace, changed)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # any failure has the same cure, and the gateway serves on meanwhile
                failed()
                text = str(error)[:300] or f"no answer within {_ANSWER_SECONDS} s"
                log.warning("pod_watch_failed", error=text, retry_seconds=backoff_seconds)
                await asyncio.sleep(backoff_seconds)
                backoff_seconds = min(backoff_seconds * 2, _MAX_BACKOFF_SECONDS)


async def _list_and_watch(
    core: client.CoreV1Api, api: client.ApiClient, namespace: str, changed: Callable[[list[WorkerTarget]], None]
) -> None:
    listed = api.sanitize_for_serialization(  # type: ignore[no-untyped-call]
        await core.list_namespaced_pod(namespace, label_selector=POOL_LABEL, _request_timeout=_ANSWER_SECONDS)
    )
    pods: dict[str, dict[str, Any]] = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
    changed(targets(pods))
    version = listed["metadata"]["resourceVersion"]
    while True:
        async for kind, pod in _watch(core, namespace, version):
            version = pod["metadata"]["resourceVersion"]
            if kind != "BOOKMARK":
                apply_event(pods, kind, pod)
                changed(targets(pods))


async def _watch(core: client.CoreV1Api, namespace: str, version: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The events after `version`, until the API server ends the watch."""
    async with watch.Watch() as stream:  # type: ignore[no-untyped-call]
        events = stream.stream(
            core.list_namespaced_pod,
            namespace,
            label_selector=POOL_LABEL,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH_SECONDS,
            _request_timeout=_WATCH_SECONDS + _ANSWER_SECONDS,
        )
        async for event in events:
            yield event["type"], event["raw_object"]


def apply_event(pods: dict[str, dict[str, Any]], kind: str, pod: dict[str, Any]) -> None:
    """One watch event's effect on the Pods by UID; bookmarks change nothing."""
    if kind == "DELETED":
        pods.pop(pod["metadata"]["uid"], None)
    elif kind in ("ADDED", "MODIFIED"):
        pods[pod["metadata"]["uid"]] = pod


def targets(pods: dict[str, dict[str, Any]]) -> list[WorkerTarget]:
    return [target for pod in pods.values() if (target := pod_target(pod)) is not None]
