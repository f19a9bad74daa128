"""The table: requests that kvroll, kopf and kubectl make, and what a Kubernetes API server answers.

Every scenario runs against the embedded server always, and against a real one where a cluster is up: an expectation that only one of them
meets fails. What is different on purpose is in `docs/local.md` and in `test_left_out.py`.
"""

from typing import Any

from tests.local.conformance.scenario import (
    ABSENT,
    ANY,
    APPLY,
    DRAINS,
    JSON_PATCH,
    MAPS,
    PODS,
    POOLS,
    REVISIONS,
    STRATEGIC,
    Step,
    delete,
    get,
    has,
    patch,
    post,
    put,
)

TABLE_ACCEPT = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def pool(name: str = "a", metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    usual = {
        "replicas": 2,
        "model": {"name": "a", "uri": "file:///a"},
        "precision": {"weights": "bf16", "kvCache": "bf16"},
    }
    kind = {"apiVersion": "kvroll.dev/v1alpha1", "kind": "InferencePool"}
    return {**kind, "metadata": {"name": name, **(metadata or {})}, "spec": {**usual, **spec}}


def config(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def status(code: int, reason: str, *words: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": has(*words)}


def owner(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}


CONTAINER = {"name": "main", "image": "busybox:none"}
# A node selector that no node has: the Pod stays Pending on any cluster.
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "p"}},
    "spec": {
        "containers": [CONTAINER],
        "nodeSelector": {"kvroll.dev/nowhere": "true"},
        "automountServiceAccountToken": False,
    },
}

SCENARIOS: dict[str, list[Step]] = {
    "a made object has an identity, defaults and no status": [
        post(
            POOLS,
            pool(metadata={"uid": "mine", "resourceVersion": "", "generation": 7}) | {"status": {"ready": "9/9"}},
            201,
            {
                "kind": "InferencePool",
                "metadata": {"name": "a", "namespace": "{NS}", "generation": 1, "uid": ANY, "creationTimestamp": ANY},
                "spec": {"rollout": {"maxSurge": 1, "partition": 0}, "groups": {"size": 1}},
                "status": ABSENT,
            },
            keep={"uid": "metadata.uid", "version": "metadata.resourceVersion"},
        ),
        get(f"{POOLS}/a", 200, {"metadata": {"uid": "{uid}", "resourceVersion": "{version}"}}),
        post(POOLS, pool(), 409, status(409, "AlreadyExists", 'kvpools.kvroll.dev "a" already exists')),
        get(
            f"{POOLS}/b",
            404,
            status(404, "NotFound", 'kvpools.kvroll.dev "b" not found')
            | {"details": {"name": "b", "group": "kvroll.dev", "kind": "kvpools"}},
        ),
        post(
            POOLS.replace("/NS/", "/kvroll-none/"),
            pool(),
            404,
            status(404, "NotFound", 'namespaces "kvroll-none" not found'),
        ),
    ],
    "names, labels and kinds are checked": [
        post(POOLS, pool("Not_A_Name"), 422, status(422, "Invalid", "metadata.name", "RFC 1123")),
        post(POOLS, pool("a" * 31), 422, status(422, "Invalid", "metadata.name")),
        post(POOLS, pool("b", {"labels": {"k": "not a value"}}), 422, status(422, "Invalid", "metadata.labels")),
        post(POOLS, pool("b", {"labels": {"-k-": "v"}}), 422, status(422, "Invalid", "metadata.labels")),
        post(POOLS, pool("b") | {"kind": "WorkerDrain"}, 422, status(422, "Invalid", "kind", "must be InferencePool")),
        post(POOLS, {**pool("b"), "metadata": {}}, 422, status(422, "Invalid", "name or generateName is required")),
        post(POOLS, {**pool("b"), "metadata": {"generateName": "g-"}}, 201, {"metadata": {"name": has("g-")}}),
        post(POOLS, pool("b", {"namespace": "elsewhere"}), 400, status(400, "BadRequest", "namespace")),
    ],
    "a schema is enforced": [
        post(POOLS, pool(replicas=-1), 422, status(422, "Invalid", "spec.replicas", "greater than or equal to 0")),
        post(POOLS, pool(replicas="two"), 422, status(422, "Invalid", "spec.replicas", "must be of type integer")),
        post(
            POOLS,
            pool(precision={"weights": "bf16", "kvCache": "int3"}),
            422,
            status(
                422, "Invalid", 'spec.precision.kvCache: Unsupported value: "int3": supported values: "fp32", "bf16"'
            ),
        ),
        post(POOLS, pool(model={"name": "a"}), 422, status(422, "Invalid", "spec.model.uri: Required value")),
        post(POOLS, pool(sessionz={}), 201, {"spec": {"sessionz": ABSENT}}, warns='unknown field \\"spec.sessionz\\"'),
        post(f"{POOLS}?fieldValidation=Ignore", pool("b", sessionz={}), 201, {"spec": {"sessionz": ABSENT}}),
        post(
            f"{POOLS}?fieldValidation=Strict",
            pool("c", sessionz={}),
            400,
            status(400, "BadRequest", 'strict decoding error: unknown field "spec.sessionz"'),
        ),
        post(
            f"{POOLS}?fieldValidation=Strict", pool("c", groups={"size": None}), 201, {"spec": {"groups": {"size": 1}}}
        ),
    ],
    "rules are enforced": [
        post(
            POOLS,
            pool(rollout={"maxSurge": 0, "maxUnavailable": 0}),
            422,
            status(422, "Invalid", "spec.rollout", "maxSurge"),
        ),
        post(
            POOLS,
            pool(model={"name": "a", "uri": "hf://org/name"}),
            422,
            status(422, "Invalid", "spec.model.uri", "file://"),
        ),
        post(POOLS, pool(), 201),
        patch(
            f"{POOLS}/a",
            {"spec": {"model": {"name": "other"}}},
            422,
            status(422, "Invalid", "spec.model.name", "immutable"),
        ),
        post(
            DRAINS,
            {
                "apiVersion": "kvroll.dev/v1alpha1",
                "kind": "WorkerDrain",
                "metadata": {"name": "d"},
                "spec": {"podName": "x", "podUID": "u", "reason": "Request", "allow": ["Exact"]},
            },
            201,
        ),
        patch(f"{DRAINS}/d", {"spec": {"podName": "y"}}, 422, status(422, "Invalid", "spec", "immutable")),
    ],
    "a change counts generations and versions only where something changed": [
        post(POOLS, pool(), 201, keep={"one": "metadata.resourceVersion"}),
        patch(
            f"{POOLS}/a", {"spec": {"replicas": 2}}, 200, {"metadata": {"generation": 1, "resourceVersion": "{one}"}}
        ),
        patch(f"{POOLS}/a", {"metadata": {"labels": {"x": "y"}}}, 200, {"metadata": {"generation": 1}}),
        patch(f"{POOLS}/a", {"spec": {"replicas": 4}}, 200, {"metadata": {"generation": 2}}),
        patch(f"{POOLS}/a", {"status": {"ready": "1/1"}}, 200, {"status": ABSENT}),
        patch(
            f"{POOLS}/a/status",
            {"status": {"ready": "1/1"}, "spec": {"replicas": 8}},
            200,
            {"metadata": {"generation": 2}, "spec": {"replicas": 4}, "status": {"ready": "1/1"}},
        ),
        get(f"{POOLS}/a/status", 200, {"status": {"ready": "1/1"}}),
    ],
    "two writers do not overwrite each other": [
        post(POOLS, pool(), 201, keep={"one": "metadata.resourceVersion", "uid": "metadata.uid"}),
        patch(f"{POOLS}/a", {"metadata": {"resourceVersion": "{one}"}, "spec": {"replicas": 4}}, 200),
        patch(
            f"{POOLS}/a",
            {"metadata": {"resourceVersion": "{one}"}, "spec": {"replicas": 6}},
            409,
            status(409, "Conflict", "the object has been modified"),
        ),
        patch(
            f"{POOLS}/a",
            {"metadata": {"uid": "other"}},
            422,
            status(422, "Invalid", "metadata.uid", "field is immutable"),
        ),
        post(MAPS, config("c"), 201, keep={"version": "metadata.resourceVersion"}),
        patch(f"{MAPS}/c", {"metadata": {"uid": "other"}}, 422, status(422, "Invalid", "metadata.uid: Invalid value")),
        patch(
            f"{MAPS}/c",
            {"metadata": {"uid": "other", "resourceVersion": "1"}},
            409,
            status(409, "Conflict", "modified"),
        ),
        post(PODS, POD, 201),
        patch(
            f"{PODS}/p/status",
            {"metadata": {"uid": "other"}, "status": {"phase": "Failed"}},
            422,
            status(422, "Invalid", "metadata.uid"),
        ),
        put(f"{MAPS}/c", config("c", uid="other"), 409, status(409, "Conflict", "UID")),
        put(f"{MAPS}/c", config("c", {"a": "1"}), 200, {"data": {"a": "1"}}),
        put(
            f"{POOLS}/a",
            pool(),
            422,
            status(422, "Invalid", "metadata.resourceVersion", "must be specified for an update"),
        ),
        put(
            f"{POOLS}/a",
            pool(metadata={"resourceVersion": "{one}"}),
            409,
            status(409, "Conflict", "the object has been modified"),
        ),
        put(f"{POOLS}/b", pool("a"), 400, status(400, "BadRequest", "does not match the name on the URL")),
        put(f"{POOLS}/b", pool("b", {"resourceVersion": "1"}), 404, status(404, "NotFound")),
        delete(
            f"{POOLS}/a",
            409,
            status(409, "Conflict", "UID in the precondition"),
            body={"preconditions": {"uid": "other"}},
        ),
        delete(
            f"{POOLS}/a",
            200,
            {"kind": "Status", "status": "Success", "details": {"name": "a", "uid": "{uid}", "kind": "kvpools"}},
        ),
    ],
    "a dry run writes nothing": [
        post(f"{POOLS}?dryRun=All", pool(), 201, {"metadata": {"name": "a"}}),
        get(f"{POOLS}/a", 404),
        post(POOLS, pool(), 201),
        patch(f"{POOLS}/a?dryRun=All", {"spec": {"replicas": 4}}, 200, {"spec": {"replicas": 4}}),
        delete(f"{POOLS}/a?dryRun=All", 200),
        get(f"{POOLS}/a", 200, {"spec": {"replicas": 2}}),
    ],
    "patches": [
        post(MAPS, config("c", {"a": "1", "b": "2"}), 201),
        patch(f"{MAPS}/c", {"data": {"a": None, "c": "3"}}, 200, {"data": {"a": ABSENT, "b": "2", "c": "3"}}),
        patch(
            f"{MAPS}/c",
            [{"op": "replace", "path": "/data/b", "value": "4"}, {"op": "copy", "from": "/data/b", "path": "/data/d"}],
            200,
            {"data": {"b": "4", "d": "4"}},
            JSON_PATCH,
        ),
        patch(f"{MAPS}/c", [{"op": "test", "path": "/data/b", "value": "9"}], 422, status(422, "Invalid"), JSON_PATCH),
        patch(f"{MAPS}/c", {"data": {"b": None}}, 200, {"data": {"b": ABSENT, "d": "4"}}, STRATEGIC),
        patch(
            f"{MAPS}/c",
            {"data": {"b": "1"}},
            415,
            status(415, "UnsupportedMediaType"),
            "application/json",
        ),
        post(POOLS, pool(), 201),
        patch(f"{POOLS}/a", {"spec": {"replicas": 4}}, 415, status(415, "UnsupportedMediaType"), STRATEGIC),
    ],
    "strategic merge patches merge lists by their keys": [
        post(PODS, POD, 201),
        patch(
            f"{PODS}/p",
            {"spec": {"containers": [{"name": "main", "image": "busybox:two"}]}},
            200,
            {"spec": {"containers": [{"name": "main", "image": "busybox:two", "imagePullPolicy": ANY}]}},
            STRATEGIC,
        ),
        patch(f"{PODS}/p/status", {"status": {"conditions": [{"type": "A", "status": "True"}]}}, 200, {}, STRATEGIC),
        patch(
            f"{PODS}/p/status",
            {"status": {"conditions": [{"type": "B", "status": "True"}, {"type": "A", "status": "False"}]}},
            200,
            {},
            STRATEGIC,
        ),
        patch(
            f"{PODS}/p",
            {"metadata": {"finalizers": ["kvroll.dev/a"]}},
            200,
            {"metadata": {"finalizers": ["kvroll.dev/a"]}},
            STRATEGIC,
        ),
        patch(f"{PODS}/p", {"metadata": {"finalizers": ["kvroll.dev/b"]}}, 200, {}, STRATEGIC),
        patch(
            f"{PODS}/p",
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["kvroll.dev/b"]}},
            200,
            {"metadata": {"finalizers": ["kvroll.dev/a"]}},
            STRATEGIC,
        ),
        patch(f"{PODS}/p", {"metadata": {"finalizers": None}}, 200, {"metadata": {"finalizers": ABSENT}}, STRATEGIC),
    ],
    "server-side apply makes, changes and takes away what one manager names": [
        patch(
            f"{MAPS}/c?fieldManager=one&force=true",
            config("c", {"a": "1", "b": "2"}),
            201,
            {"data": {"a": "1", "b": "2"}},
            APPLY,
            keep={"v": "metadata.resourceVersion"},
        ),
        patch(
            f"{MAPS}/c?fieldManager=one&force=true",
            config("c", {"a": "1", "b": "2"}),
            200,
            {"metadata": {"resourceVersion": "{v}"}},
            APPLY,
        ),
        patch(f"{MAPS}/c", {"data": {"z": "9"}}, 200),
        patch(
            f"{MAPS}/c?fieldManager=one&force=true",
            config("c", {"a": "3"}),
            200,
            {"data": {"a": "3", "b": ABSENT, "z": "9"}},
            APPLY,
        ),
        patch(
            f"{MAPS}/c?fieldManager=two",
            config("c", {"a": "4"}),
            409,
            status(409, "Conflict", "conflict", ".data.a"),
            APPLY,
        ),
        patch(
            f"{MAPS}/c?fieldManager=two", config("c", {"a": "3", "y": "8"}), 200, {"data": {"a": "3", "y": "8"}}, APPLY
        ),
        patch(
            f"{MAPS}/c?fieldManager=two&force=true",
            config("c", {"y": "8"}),
            200,
            {"data": {"a": "3", "y": "8", "z": "9"}},
            APPLY,
        ),
        patch(
            f"{MAPS}/c?fieldManager=two&force=true",
            config("c", {"a": "5"}),
            200,
            {"data": {"a": "5", "y": ABSENT}},
            APPLY,
        ),
        patch(f"{MAPS}/c?fieldManager=one", config("c"), 200, {"data": {"a": "5"}}, APPLY),
        patch(f"{MAPS}/c", config("c"), 422, status(422, "Invalid", "fieldManager: Required value"), APPLY),
    ],
    "server-side apply of a pool takes a struct away with its defaults": [
        patch(
            f"{POOLS}/a?fieldManager=one&force=true",
            pool(gate={"source": "Builtin", "metrics": [{"name": "top1Agreement", "min": 0.9}]}),
            201,
            {"spec": {"gate": {"source": "Builtin"}}},
            APPLY,
        ),
        patch(
            f"{POOLS}/a?fieldManager=one&force=true",
            pool(),
            200,
            {"spec": {"gate": ABSENT}, "metadata": {"generation": 2}},
            APPLY,
        ),
        patch(
            f"{POOLS}/a/status?fieldManager=op&force=true",
            {
                "apiVersion": "kvroll.dev/v1alpha1",
                "kind": "InferencePool",
                "metadata": {"name": "a"},
                "status": {"ready": "1/2", "replicas": 1},
            },
            200,
            {"status": {"ready": "1/2"}, "metadata": {"generation": 2}},
            APPLY,
        ),
        patch(
            f"{POOLS}/a/status?fieldManager=op&force=true",
            {
                "apiVersion": "kvroll.dev/v1alpha1",
                "kind": "InferencePool",
                "metadata": {"name": "a"},
                "status": {"replicas": 2},
            },
            200,
            {"status": {"ready": ABSENT, "replicas": 2}},
            APPLY,
        ),
        patch(
            f"{POOLS}/b/status?fieldManager=op&force=true",
            {
                "apiVersion": "kvroll.dev/v1alpha1",
                "kind": "InferencePool",
                "metadata": {"name": "b"},
                "status": {"replicas": 2},
            },
            404,
            status(404, "NotFound"),
            APPLY,
        ),
    ],
    "finalizers hold an object until the last is gone": [
        post(POOLS, pool(metadata={"finalizers": ["kvroll.dev/a", "kvroll.dev/b"]}), 201),
        delete(
            f"{POOLS}/a",
            200,
            {
                "kind": "InferencePool",
                "metadata": {"deletionTimestamp": ANY, "deletionGracePeriodSeconds": 0, "generation": 2},
            },
        ),
        patch(
            f"{POOLS}/a",
            {"metadata": {"finalizers": ["kvroll.dev/a", "kvroll.dev/c"]}},
            422,
            status(422, "Invalid", "metadata.finalizers", "no new finalizers can be added"),
        ),
        patch(
            f"{POOLS}/a",
            {"metadata": {"finalizers": ["kvroll.dev/a"]}},
            200,
            {"metadata": {"finalizers": ["kvroll.dev/a"]}},
        ),
        delete(f"{POOLS}/a", 200, {"metadata": {"deletionTimestamp": ANY}}),
        patch(f"{POOLS}/a", {"metadata": {"finalizers": []}}, 200),
        get(f"{POOLS}/a", 404),
    ],
    "an unbound Pod goes at once, and its spec is fixed": [
        post(
            PODS,
            POD,
            201,
            {
                "status": {"phase": "Pending", "qosClass": "BestEffort"},
                "spec": {
                    "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{"terminationMessagePath": "/dev/termination-log"}],
                },
            },
        ),
        patch(
            f"{PODS}/p",
            {"spec": {"hostNetwork": True}},
            422,
            status(422, "Invalid", "spec", "pod updates may not change fields other than"),
        ),
        patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, 200, {"metadata": {"labels": {"a": "b", "app": "p"}}}),
        post(
            PODS,
            {**POD, "metadata": {"name": "q"}, "spec": {"containers": []}},
            422,
            status(422, "Invalid", "spec.containers: Required value"),
        ),
        post(
            f"{PODS}?fieldValidation=Strict",
            {**POD, "metadata": {"name": "q"}, "spec": {**POD["spec"], "containerz": []}},
            400,
            status(400, "BadRequest", 'unknown field "spec.containerz"'),
        ),
        post(
            PODS,
            {**POD, "metadata": {"name": "q"}, "spec": {**POD["spec"], "containers": "main"}},
            400,
            status(400, "BadRequest", "cannot be handled as a Pod"),
        ),
        delete(f"{PODS}/p", 200, {"kind": "Pod"}),
        get(f"{PODS}/p", 404),
    ],
    "immutable data": [
        post(
            REVISIONS,
            {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {"name": "r"},
                "revision": 1,
                "data": {"a": 1},
            },
            201,
            {"data": {"a": 1}},
        ),
        patch(f"{REVISIONS}/r", {"data": {"a": 2}}, 422, status(422, "Invalid", "data", "immutable")),
        patch(f"{REVISIONS}/r", {"revision": 2, "metadata": {"annotations": {"a": "b"}}}, 200, {"revision": 2}),
    ],
    "selectors": [
        post(MAPS, config("x", labels={"app": "a", "tier": "one"}), 201),
        post(MAPS, config("y", labels={"app": "a"}), 201),
        post(MAPS, config("z", labels={"app": "b"}), 201),
        *(
            get(f"{MAPS}?labelSelector={selector}", 200, {"items": [{"metadata": {"name": name}} for name in names]})
            for selector, names in {
                "app=a": ["x", "y"],
                "app%3D%3Da,tier": ["x"],
                "app=a,!tier": ["y"],
                "app in (a,b),tier!=one,app!=zz": ["y", "z"],
                "app notin (a),app": ["z"],
                "tier in (one, two)": ["x"],
            }.items()
        ),
        get(f"{MAPS}?fieldSelector=metadata.name=y", 200, {"items": [{"metadata": {"name": "y"}}]}),
        get(
            f"{MAPS}?labelSelector=app=a&fieldSelector=metadata.name!=y", 200, {"items": [{"metadata": {"name": "x"}}]}
        ),
        get(f"{MAPS}?labelSelector=app in a", 400, status(400, "BadRequest")),
        get(f"{MAPS}?fieldSelector=data.a=b", 400, status(400, "BadRequest", "data.a")),
        delete(f"{MAPS}?labelSelector=app=a", 200),
        get(f"{MAPS}?labelSelector=app", 200, {"items": [{"metadata": {"name": "z"}}]}),
    ],
    "scale": [
        post(POOLS, pool(), 201),
        get(
            f"{POOLS}/a/scale",
            200,
            {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 2}, "status": {"replicas": 0}},
        ),
        patch(f"{POOLS}/a/scale", {"spec": {"replicas": 4}}, 200, {"spec": {"replicas": 4}}),
        get(f"{POOLS}/a", 200, {"spec": {"replicas": 4}, "metadata": {"generation": 2}}),
        patch(f"{POOLS}/a/scale", {"spec": {"replicas": -4}}, 422, status(422, "Invalid", "spec.replicas")),
        get(f"{POOLS}/b/scale", 404, status(404, "NotFound")),
    ],
    "tables": [
        post(POOLS, pool(), 201),
        get(
            f"{POOLS}/a",
            200,
            {
                "kind": "Table",
                "columnDefinitions": ANY,
                "rows": [
                    {"cells": ["a", "a", "bf16", "bf16", *[ANY] * 14], "object": {"kind": "PartialObjectMetadata"}}
                ],
            },
            headers=TABLE_ACCEPT,
        ),
        get(
            f"{POOLS}?includeObject=Object",
            200,
            {"kind": "Table", "rows": [{"object": {"kind": "InferencePool"}}]},
            headers=TABLE_ACCEPT,
        ),
    ],
    "events, in both groups' words": [
        post(
            "/apis/events.k8s.io/v1/namespaces/NS/events",
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": "e"},
                "eventTime": "2030-01-01T00:00:00.000000Z",
                "action": "Roll",
                "reason": "Rolling",
                "type": "Normal",
                "note": "group 1",
                "reportingController": "kvroll.dev/operator",
                "reportingInstance": "o-1",
                "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": "{NS}"},
            },
            201,
            {"note": "group 1"},
        ),
        get(
            "/api/v1/namespaces/NS/events/e",
            200,
            {
                "apiVersion": "v1",
                "message": "group 1",
                "involvedObject": {"name": "c"},
                "reportingComponent": "kvroll.dev/operator",
            },
        ),
        get(
            "/api/v1/namespaces/NS/events?fieldSelector=involvedObject.kind=ConfigMap,involvedObject.name=c",
            200,
            {"items": [{"reason": "Rolling"}]},
        ),
        get("/api/v1/namespaces/NS/events?fieldSelector=involvedObject.kind=Pod", 200, {"items": []}),
    ],
    "discovery": [
        get("/api", 200, {"kind": "APIVersions", "versions": ["v1"]}),
        get(
            "/apis/kvroll.dev",
            200,
            {"kind": "APIGroup", "name": "kvroll.dev", "preferredVersion": {"groupVersion": "kvroll.dev/v1alpha1"}},
        ),
        get("/apis/kvroll.dev/v1alpha1", 200, {"kind": "APIResourceList", "groupVersion": "kvroll.dev/v1alpha1"}),
        get("/openapi/v3", 200, {"paths": {"apis/kvroll.dev/v1alpha1": ANY, "api/v1": ANY}}),
        get("/apis/none.kvroll.dev/v1/namespaces/NS/nothings", 404),
        get("/apis/kvroll.dev/v1alpha1/namespaces/NS/nothings", 404),
        get("/version", 200, {"gitVersion": ANY}),
    ],
    "lists": [
        post(MAPS, config("x", labels={"mine": "y"}), 201, keep={"v": "metadata.resourceVersion"}),
        get(
            f"{MAPS}?labelSelector=mine&resourceVersion=0",
            200,
            {"kind": "ConfigMapList", "metadata": {"resourceVersion": ANY}, "items": [{"metadata": {"name": "x"}}]},
        ),
        get(
            f"{MAPS}?labelSelector=mine&resourceVersion={{v}}&resourceVersionMatch=NotOlderThan", 200, {"items": [ANY]}
        ),
        get(f"{MAPS}?limit=500&labelSelector=mine", 200, {"items": [ANY]}),
        get("/api/v1/configmaps?labelSelector=mine&fieldSelector=metadata.namespace=NSNAME", 200, {"items": [ANY]}),
    ],
}
