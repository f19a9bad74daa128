"""Renders the objects that a pool owns besides its Pods."""

from dataclasses import dataclass
from typing import Any

from kvroll_core.revision import HASH_VERSION
from kvroll_operator.api import API_VERSION
from kvroll_operator.api.names import JOURNAL_FINALIZER, LABEL
from kvroll_operator.rollout.act.effects import CreateDrain
from kvroll_operator.rollout.decide.writes import CreateRevision

Json = dict[str, Any]

_NEVER_HEALTHY_ENOUGH = 100_000
"""More Pods than a pool can have. `maxUnavailable: 0` would allow an eviction for every surge Pod beyond `replicas`."""


@dataclass(frozen=True)
class Owner:
    """The pool that owns an object."""

    name: str
    uid: str
    namespace: str

    def metadata(self, name: str, labels: dict[str, str] | None = None) -> Json:
        """Metadata of an owned object of that name."""
        owner = {
            "apiVersion": API_VERSION,
            "kind": "InferencePool",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
        labels = {**(labels or {}), f"{LABEL}pool": self.name}
        return {"name": name, "namespace": self.namespace, "labels": labels, "ownerReferences": [owner]}


def service(owner: Owner) -> Json:
    """Headless Service over all workers, ready or not: a worker that drains must stay reachable."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(f"{owner.name}-workers"),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {f"{LABEL}pool": owner.name},
            "ports": [
                {"name": "grpc", "port": 7070, "targetPort": "grpc"},
                {"name": "http", "port": 7071, "targetPort": "http"},
            ],
        },
    }


def disruption_budget(owner: Owner) -> Json:
    """Forbids evictions of workers that may hold sessions; a sealed worker loses the label."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(owner.name),
        "spec": {
            "minAvailable": _NEVER_HEALTHY_ENOUGH,
            "selector": {"matchLabels": {f"{LABEL}pool": owner.name, f"{LABEL}protected": "true"}},
        },
    }


def revision(owner: Owner, effect: CreateRevision) -> Json:
    """ControllerRevision of a content."""
    labels = {f"{LABEL}revision": effect.short, f"{LABEL}hash-version": str(HASH_VERSION)}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": owner.metadata(f"{owner.name}-{effect.short}", labels),
        "revision": effect.number,
        "data": {
            "content": effect.content,
            "version": HASH_VERSION,
            **({"defaultImage": True} if effect.has_default_image else {}),
        },
    }


def drain(owner: Owner, effect: CreateDrain) -> Json:
    """WorkerDrain with the policy as it is now."""
    pod, policy = effect.pod, effect.policy
    labels = {f"{LABEL}revision": pod.revision, f"{LABEL}group": str(pod.group)}
    if effect.rollout:
        labels[f"{LABEL}rollout"] = effect.rollout
    spec: Json = {
        "podName": pod.name,
        "podUID": pod.uid,
        "reason": effect.reason,
        "rollout": effect.rollout,
        "allow": list(policy.allow),
        "kvAcrossWeights": policy.kv_across_weights,
        "parallel": min(policy.parallel, policy.per_worker),
        "maxDowntimeMs": policy.max_downtime_ms,
        "deadlineSeconds": policy.deadline_seconds,
        "onDeadline": "Drop" if policy.drops_late else "Hold",
    }
    if policy.bytes_per_second is not None:
        spec["bytesPerSecond"] = policy.bytes_per_second
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkerDrain",
        "metadata": {**owner.metadata(drain_name(pod.name, pod.uid), labels), "finalizers": [JOURNAL_FINALIZER]},
        "spec": spec,
    }


def drain_name(pod_name: str, pod_uid: str) -> str:
    """Names a drain by its Pod's UID too: a Pod name comes again."""
    return f"{pod_name}-{pod_uid.replace('-', '')[:8]}"
