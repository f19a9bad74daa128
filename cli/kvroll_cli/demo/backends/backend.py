"""Where the demo and the e2e tests run: something that has kvroll on it, a pool's form there, and its end."""

from pathlib import Path
from typing import Any, Protocol

from kvroll_cli.demo.backends.objects import BackendObjects, Object

MODEL_NAME = "smollm2-135m-instruct"


class Backend(Protocol):
    """One place to run. `name` is the report's `backend`."""

    name: str
    opening: str
    """What `start` does, as a user would type it."""

    @property
    def objects(self) -> BackendObjects:
        """The objects of its namespace, once it has started."""

    async def start(self) -> None:
        """Brings operator and gateway up.

        Raises:
            BackendError: they did not come up, or a program is missing.
        """

    async def gateway_url(self) -> str:
        """Where clients reach the gateway."""

    async def facts(self) -> dict[str, Any]:
        """What this place is, for the report: `kubernetes_version`, `nodes`."""

    def pool(self, name: str, **wanted: Any) -> Object:
        """An InferencePool of the demo's model in the form of this place; the arguments are those of `pool_of`."""

    async def stop(self) -> None:
        """Ends what `start` began, and every pool; nothing is left that was not there before, but what an install keeps."""


def pool_of(
    name: str,
    model_uri: str,
    *,
    replicas: int,
    model_name: str = MODEL_NAME,
    weights: str = "bf16",
    kv_cache: str = "bf16",
    kv_memory: str = "192Mi",
    max_model_len: int = 4096,
    **spec: Any,
) -> Object:
    """An InferencePool of the small model, for a machine whose few cores its workers share."""
    return {
        "apiVersion": "kvroll.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "model": {"name": model_name, "uri": model_uri},
            "precision": {"weights": weights, "kvCache": kv_cache},
            # One thread a worker: the workers of a small machine share its cores anyway.
            "engine": {"maxModelLen": max_model_len, "kvMemory": kv_memory, "threads": 1},
            # All sessions of a worker at once: a move waits for step borders, not for bandwidth, on a machine like this.
            "sessions": {"parallel": 8, "perWorker": 8},
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}},
            **spec,
        },
    }


def checkout() -> Path | None:
    """The repository that this package lies in; None when it is installed elsewhere."""
    root = Path(__file__).resolve().parents[4]
    return root if (root / "charts/kvroll/Chart.yaml").is_file() else None
