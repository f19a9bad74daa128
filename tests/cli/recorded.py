"""Objects as the API server shows them in the middle of a roll from bf16 to int8 KV cache."""

import json
from typing import Any

from kvroll_core.plan import RolloutRecord
from kvroll_core.revision import HASH_VERSION


def pool(**status: Any) -> dict[str, Any]:
    """The demo's pool: group 0 is through, group 1 drains, group 2 has not begun."""
    return {
        "apiVersion": "kvroll.dev/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "demo", "namespace": "demo", "uid": "p-1", "generation": 2},
        "spec": {
            "replicas": 3,
            "model": {"name": "smollm2", "uri": "file:///models/smollm2"},
            "precision": {"weights": "bf16", "kvCache": "int8"},
        },
        "status": {
            "observedGeneration": 2,
            "ready": "3/3",
            "updated": "1/3",
            "sessions": {"active": 18},
            "precisionMix": [
                {"revision": "aaaa1111", "weights": "bf16", "kvCache": "bf16", "workers": 2},
                {"revision": "bbbb2222", "weights": "bf16", "kvCache": "int8", "workers": 1},
            ],
            "groups": [
                {"id": 1, "phase": "Draining", "revision": "aaaa1111", "targetRevision": "bbbb2222", "sessions": 5},
                {"id": 0, "phase": "Updated", "revision": "bbbb2222", "targetRevision": "bbbb2222", "sessions": 7},
                {"id": 2, "phase": "Stable", "revision": "aaaa1111", "targetRevision": "bbbb2222", "sessions": 6},
            ],
            "rollout": {
                "id": "r-2",
                "from": "aaaa1111",
                "to": "bbbb2222",
                "reason": "Update",
                "phase": "Rolling",
                "group": "1/3",
                "sessions": {"held": 13, "converted": 7, "finished": 1, "wireBytes": 3 * 1024 * 1024, "lost": 0},
            },
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "FloorHeld", "message": "3 of 3 serve"},
                {"type": "Progressing", "status": "True", "reason": "Rolling", "message": "group 1 drains"},
                {"type": "GatePassed", "status": "Unknown", "reason": "NotRun"},
                {
                    "type": "CapacityFeasible",
                    "status": "False",
                    "reason": "NoSurgeDevice",
                    "message": "no node has room",
                },
            ],
            **status,
        },
    }


BEGAN = "2026-01-01T00:00:00Z"


def plan(**actual: Any) -> dict[str, Any]:
    """status.plan of that roll: 13 sessions, 4 MiB and 120 s were planned; `actual` is what it came to so far."""
    cost = {
        "sessions": 12,
        "held": 13,
        "groups": 3,
        "bytesToMove": 4 * 1024 * 1024,
        "tokensToReplay": 0,
        "seconds": 120,
    }
    return {"id": "r-2", "cost": cost, "actual": {"held": 13, "bytesMoved": 3 * 1024 * 1024, **actual}}


def gate(**changes: Any) -> dict[str, Any]:
    """status.gate while the canary is measured."""
    metrics = [
        {"name": "top1Agreement", "value": 0.981, "min": 0.97, "verdict": "Pass"},
        {"name": "klMean", "value": 0.0312, "max": 0.02, "verdict": "Fail"},
    ]
    return {"verdict": "Fail", "point": "Canary", "reason": "klMean", "samples": 120, "metrics": metrics, **changes}


def wall() -> dict[str, Any]:
    """status.wall of a full pool."""
    return {
        "verdict": "Capacity",
        "basis": "Modelled",
        "message": "sessions wait for KV pages",
        "evidence": [{"name": "waitingForPages", "value": 0.41, "threshold": 0.05, "over": True}],
        "advice": [{"lever": "kvCache", "to": "int8", "why": "more room lets them in", "sessionsRatio": 1.94}],
    }


def drain(**changes: Any) -> dict[str, Any]:
    """The drain of group 1's old worker."""
    return {
        "metadata": {
            "name": "demo-aaaa1111-1-0-0-deadbeef",
            "namespace": "demo",
            "labels": {"kvroll.dev/pool": "demo", "kvroll.dev/group": "1", "kvroll.dev/rollout": "r-2"},
            "ownerReferences": [{"uid": "p-1", "kind": "InferencePool", "name": "demo"}],
            **changes,
        },
        "spec": {"podName": "demo-aaaa1111-1-0-0", "podUID": "u-1", "reason": "Rollout", "allow": ["Convert"]},
        "status": {
            "phase": "Draining",
            "held": 6,
            "remaining": 5,
            "converted": 1,
            "wireBytes": 1024 * 1024,
            "lastError": "",
        },
    }


def revision(number: int, short: str, record: RolloutRecord, kv_cache: str = "bf16") -> dict[str, Any]:
    """A ControllerRevision of the demo's pool."""
    content = {"precision": {"weights": "bf16", "kvCache": kv_cache}, "engine": {"image": "kvroll:1"}}
    annotations = {key: value for key, value in record.to_annotations().items() if value is not None}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"demo-{short}",
            "namespace": "demo",
            "labels": {"kvroll.dev/pool": "demo", "kvroll.dev/revision": short},
            "annotations": annotations,
        },
        "revision": number,
        "data": {"version": HASH_VERSION, "content": json.dumps(content)},
    }
