"""Lists, selectors, views and discovery."""

from tests.local.conformance.documents import TABLE_ACCEPT, config, pool, status
from tests.local.conformance.scenario import ANY, MAPS, POOLS, Step, delete, get, patch, post

READING: dict[str, list[Step]] = {
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
