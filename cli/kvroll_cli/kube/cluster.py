"""Reads pools, drains and revisions from the API server, and writes the one annotation that asks the operator for a
decision.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import urllib3
from kubernetes import client
from kubernetes import config as kube_config

from kvroll_cli.errors import CliError
from kvroll_operator.api import DRAINS, GROUP, POOLS, VERSION

REQUEST_ANNOTATION = f"{GROUP}/request"
KIND = "InferencePool"
POOL_LABEL = f"{GROUP}/pool"
GROUP_LABEL = f"{GROUP}/group"
ROLLOUT_LABEL = f"{GROUP}/rollout"
FIELD_MANAGER = "kvroll-cli"
TIMEOUT_SECONDS = 15
WORKER_HTTP_PORT = 7071
"""A number: the API server's proxy to a Pod knows no port names."""
FALLBACK_NAMESPACE = "default"

_T = TypeVar("_T")

# Half of the client has types, and those say `object`; the border is here.
config: Any = kube_config


@dataclass(frozen=True)
class Cluster:
    """One API server; `namespace` None means all of them."""

    api: Any
    namespace: str | None

    @classmethod
    def connect(cls, *, namespace: str | None, all_namespaces: bool, context: str | None) -> "Cluster":
        """The cluster of the kubeconfig, in its context's namespace unless one is named.

        Raises:
            CliError: there is no usable kubeconfig.
        """
        # The client reads KUBECONFIG once, when it is imported.
        file = os.environ.get("KUBECONFIG") or None
        try:
            api = config.new_client_from_config(file, context=context)
            contexts, active = config.list_kube_config_contexts(file)
        except config.ConfigException as error:
            raise CliError(
                f"expected a kubeconfig (KUBECONFIG, or ~/.kube/config), found none that works: {error}"
            ) from error
        # A command answers or says that it cannot; kubectl does not retry for minutes either.
        api.rest_client.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(total=1, backoff_factor=0.2)
        chosen = next((c for c in contexts if c["name"] == context), active)
        own = chosen["context"].get("namespace", FALLBACK_NAMESPACE)
        return cls(api, None if all_namespaces else namespace or own)

    def pools(self) -> list[dict[str, Any]]:
        """Every InferencePool, by namespace and name."""
        return self._list(POOLS)

    def drains(self) -> list[dict[str, Any]]:
        """Every WorkerDrain."""
        return self._list(DRAINS)

    def pool(self, name: str) -> dict[str, Any]:
        """One InferencePool.

        Raises:
            CliError: it is not there.
        """
        api: Any = client.CustomObjectsApi(self.api)
        found: dict[str, Any] = _said(
            lambda: api.get_namespaced_custom_object(
                GROUP, VERSION, self._one_namespace(), POOLS, name, _request_timeout=TIMEOUT_SECONDS
            )
        )
        return found

    def revisions(self, pool: str) -> list[dict[str, Any]]:
        """The ControllerRevisions of a pool, as plain objects, oldest first."""
        api: Any = client.AppsV1Api(self.api)
        listed = _said(
            lambda: api.list_namespaced_controller_revision(
                self._one_namespace(), label_selector=f"{POOL_LABEL}={pool}", _request_timeout=TIMEOUT_SECONDS
            )
        )
        plain: list[dict[str, Any]] = self.api.sanitize_for_serialization(listed.items)
        return sorted(plain, key=lambda found: found["revision"])

    def pods(self, pool: str) -> list[dict[str, Any]]:
        """The worker Pods of a pool, as plain objects, by name."""
        api: Any = client.CoreV1Api(self.api)
        listed = _said(
            lambda: api.list_namespaced_pod(
                self._one_namespace(), label_selector=f"{POOL_LABEL}={pool}", _request_timeout=TIMEOUT_SECONDS
            )
        )
        plain: list[dict[str, Any]] = self.api.sanitize_for_serialization(listed.items)
        return sorted(plain, key=lambda found: found["metadata"]["name"])

    def events(self) -> list[dict[str, Any]]:
        """The Events about InferencePools, as plain objects, oldest first."""
        api: Any = client.CoreV1Api(self.api)
        # The core group selects by involvedObject in every version; both groups show the same objects.
        asked = {"field_selector": f"involvedObject.kind={KIND}", "_request_timeout": TIMEOUT_SECONDS}
        listed = _said(
            lambda: (
                api.list_event_for_all_namespaces(**asked)
                if self.namespace is None
                else api.list_namespaced_event(self.namespace, **asked)
            )
        )
        plain: list[dict[str, Any]] = self.api.sanitize_for_serialization(listed.items)
        own = [found for found in plain if found["involvedObject"].get("kind") == KIND]
        return sorted(own, key=lambda found: str(found.get("eventTime") or found.get("lastTimestamp") or ""))

    def workers(self, pool: str) -> list[str]:
        """Names of the Pods of a pool that run and are not leaving."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods(pool)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def worker_page(self, pod: str, path: str) -> str:
        """A page of a worker (`metrics`, `report`), through the API server's proxy: a client of the cluster reaches no Pod itself.

        Raises:
            CliError: the worker does not answer, or the user may not `get` `pods/proxy`.
        """
        api: Any = client.CoreV1Api(self.api)
        answer = _said(
            lambda: api.connect_get_namespaced_pod_proxy_with_path(
                f"{pod}:{WORKER_HTTP_PORT}",
                self._one_namespace(),
                path,
                _preload_content=False,
                _request_timeout=TIMEOUT_SECONDS,
            )
        )
        return bytes(answer.data).decode()

    def request(self, pool: str, verb: str, about: str) -> None:
        """Asks the operator for `verb` on that rollout (an id) or worker (a Pod UID), and on no later one."""
        api: Any = client.CustomObjectsApi(self.api)
        patch = {"metadata": {"annotations": {REQUEST_ANNOTATION: f"{verb}@{about}"}}}
        _said(
            lambda: api.patch_namespaced_custom_object(
                GROUP,
                VERSION,
                self._one_namespace(),
                POOLS,
                pool,
                patch,
                field_manager=FIELD_MANAGER,
                _request_timeout=TIMEOUT_SECONDS,
                _content_type="application/merge-patch+json",
            )
        )

    def _list(self, plural: str) -> list[dict[str, Any]]:
        api: Any = client.CustomObjectsApi(self.api)

        def listed() -> dict[str, Any]:
            if self.namespace is None:
                return dict(api.list_cluster_custom_object(GROUP, VERSION, plural, _request_timeout=TIMEOUT_SECONDS))
            return dict(
                api.list_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, plural, _request_timeout=TIMEOUT_SECONDS
                )
            )

        items: list[dict[str, Any]] = _said(listed)["items"]
        return sorted(items, key=lambda found: (found["metadata"]["namespace"], found["metadata"]["name"]))

    def _one_namespace(self) -> str:
        if self.namespace is None:
            raise CliError("expected one namespace for this verb, found --all-namespaces: name it with --namespace")
        return self.namespace


def _said(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except client.ApiException as error:
        raise CliError(_explained(error)) from error
    except urllib3.exceptions.HTTPError as error:
        raise CliError(f"the API server does not answer: {error}; is the cluster up and KUBECONFIG right?") from error


def _explained(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        # Without its definitions the API server answers 404 in plain text, not with a Status.
        if error.status == 404:
            return f"this cluster does not know {GROUP}: helm install kvroll-crds charts/kvroll-crds"
        return f"the API server answered {error.status} {error.reason}"
