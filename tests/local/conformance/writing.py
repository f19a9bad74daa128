"""Creates, updates and deletions, and what is refused of them."""

from tests.local.conformance.documents import POD, config, pool, status
from tests.local.conformance.scenario import (
    ABSENT,
    ANY,
    DRAINS,
    MAPS,
    PODS,
    POOLS,
    REVISIONS,
    Step,
    delete,
    get,
    has,
    patch,
    post,
    put,
)

WRITING: dict[str, list[Step]] = {
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
}
