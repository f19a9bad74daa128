"""Worker Pods: the template is the user's, the container `engine` is ours."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kvroll_core.plan import RolloutRecord
from kvroll_core.revision import canonical
from kvroll_operator.api.pool import PoolSpec
from kvroll_operator.cluster import parse
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.pods import TemplateError, worker_args, worker_pod
from kvroll_operator.rollout.act.effects import CreatePod
from kvroll_operator.rollout.facts.desired import desired_from
from kvroll_operator.rollout.facts.observed import Revision

USUAL: dict[str, Any] = {
    "model": {"name": "chat", "uri": "file:///models/m"},
    "precision": {"weights": "bf16", "kvCache": "int8"},
    "engine": {"image": "img:1"},
}


def revision(content: dict[str, Any], number: int = 1) -> Revision:
    return Revision("p-abc", "abc", "u", "1", number, canonical(content))


def pod(**changes: Any) -> dict[str, Any]:
    return worker_pod(Owner("p", "uid", "ns"), CreatePod(revision({**USUAL, **changes}), 2, 1, 3))


def engine(rendered: dict[str, Any]) -> dict[str, Any]:
    (container,) = [c for c in rendered["spec"]["containers"] if c["name"] == "engine"]
    return dict(container)


def test_name_labels_and_owner() -> None:
    metadata = pod()["metadata"]
    assert metadata["name"] == "p-abc-2-1-3"
    labels = {"pool": "p", "revision": "abc", "group": "2", "index": "1", "incarnation": "3", "protected": "true"}
    assert metadata["labels"] == {f"kvroll.dev/{key}": value for key, value in labels.items()}
    assert metadata["ownerReferences"][0]["uid"] == "uid"


def test_a_worker_is_never_admitted_at_creation() -> None:
    assert "kvroll.dev/admitted" not in pod(template={"metadata": {"labels": {"team": "x"}}})["metadata"]["labels"]


def test_the_template_is_merged_by_name() -> None:
    template = {
        "metadata": {"labels": {"team": "x", "kvroll.dev/group": "9"}, "annotations": {"a": "b"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {
                    "name": "engine",
                    "imagePullPolicy": "Never",
                    "env": [{"name": "X", "value": "1"}, {"name": "KVROLL_POD_IP"}],
                },
                {"name": "side", "image": "s"},
            ],
        },
    }
    rendered = pod(template=template)
    env = {entry["name"]: entry for entry in engine(rendered)["env"]}
    assert rendered["metadata"]["labels"]["kvroll.dev/group"] == "2"
    assert rendered["metadata"]["labels"]["team"] == "x"
    assert rendered["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert engine(rendered)["imagePullPolicy"] == "Never"
    assert [c["name"] for c in rendered["spec"]["containers"]] == ["engine", "side"]
    assert env["X"] == {"name": "X", "value": "1"}
    assert env["KVROLL_POD_IP"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env["KVROLL_TERMINATION_GRACE_SECONDS"]["value"] == "30"


def test_arguments_are_the_workers_flags() -> None:
    content = {
        **USUAL,
        "engine": {
            "image": "i",
            "maxModelLen": 4096,
            "kvMemory": "1Gi",
            "maxSessions": 8,
            "threads": 2,
            "args": ["--x"],
        },
    }
    assert " ".join(worker_args(content)) == (
        "--model-uri file:///models/m --model-name chat --weights bf16 --kv-cache int8 --max-model-len 4096 --max-sessions 8 "
        "--threads 2 --kv-memory 1024MiB --x"
    )


def test_the_residual_is_a_flag_only_where_the_pool_names_one() -> None:
    precision = {"weights": "bf16", "kvCache": "kivi4", "residualTokens": 64}
    assert "--kv-cache kivi4 --residual-tokens 64" in " ".join(worker_args({**USUAL, "precision": precision}))
    assert "--residual-tokens" not in worker_args(USUAL)


def test_a_claim_is_mounted_read_only() -> None:
    rendered = pod(model={"name": "chat", "uri": "pvc://models/llama/8b"})
    (volume,), (mount,) = rendered["spec"]["volumes"], engine(rendered)["volumeMounts"]
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert mount["name"] == volume["name"]
    assert mount["readOnly"]
    assert engine(rendered)["args"][1] == f"file://{mount['mountPath']}/llama/8b"


def test_what_is_written_is_read_back() -> None:
    rendered = pod()
    rendered["metadata"].update(uid="u", resourceVersion="7", creationTimestamp="2026-01-01T00:00:00Z")
    rendered["status"] = {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
        ],
    }
    read = parse.pod(rendered, None)
    assert (read.slot, read.incarnation, read.revision, read.admitted, read.protected) == ((2, 1), 3, "abc", None, True)
    assert read.ready_since == read.created + 9
    assert not read.terminated


def image(*revisions: Revision, default: str = "default") -> str:
    spec = PoolSpec.model_validate({**USUAL, "engine": {}})
    content = desired_from({"name": "p", "uid": "u"}, spec, revisions, default_image=default).content
    return str(json.loads(content)["engine"]["image"]) if content else ""


def test_an_unset_image_is_the_last_good_or_newest_revisions() -> None:
    older, newer = (revision({**USUAL, "engine": {"image": i}}, n) for n, i in enumerate(("old", "new")))
    assert image(newer, older) == "new"
    assert image(newer, replace(older, record=RolloutRecord(stable=1))) == "old"
    assert image() == "default"
    assert image(default="") == ""


def test_taking_a_bad_image_out_of_the_spec_goes_back_to_the_one_before() -> None:
    first = replace(revision({**USUAL, "engine": {"image": "default"}}, 1), has_default_image=True)
    bad = replace(revision({**USUAL, "engine": {"image": "bad"}}, 2), record=RolloutRecord(stable=7))
    assert image(first, bad, default="another operator's default") == "default"


def contents(**precision: Any) -> str:
    spec = {key: USUAL[key] for key in ("model", "engine")} | {"precision": {**USUAL["precision"], **precision}}
    return desired_from({"name": "p", "uid": "u"}, PoolSpec.model_validate(spec), ()).content


def test_knobs_of_the_precision_become_flags() -> None:
    precision = {"weights": "int4", "kvCache": "bf16", "weightBlockSize": 32, "head": "int8"}
    args = worker_args({**USUAL, "precision": precision})
    assert args[args.index("--weight-block-size") + 1] == "32"
    assert args[args.index("--head") + 1] == "int8"
    assert not {"--weight-block-size", "--head", "--kv-skip-layers"} & set(worker_args(USUAL))
    args = worker_args({**USUAL, "precision": {**USUAL["precision"], "skipLayers": [0, 29]}})
    assert args[args.index("--kv-skip-layers") + 1] == "0,29"


def test_a_knob_that_changes_a_byte_is_another_revision_and_a_default_spelt_out_is_none() -> None:
    assert contents(weights="int4", weightBlockSize=64, head="Same") == contents(weights="int4")
    assert contents(weights="int8", weightBlockSize=32) == contents(weights="int8")
    assert contents(skipLayers=[]) == contents()
    assert contents(skipLayers=[29, 0]) == contents(skipLayers=[0, 29]) != contents()
    assert contents(kvCache="bf16", skipLayers=[1]) == contents(kvCache="bf16")
    assert len({contents(weights="int4", **knobs) for knobs in ({}, {"weightBlockSize": 32}, {"head": "int8"})}) == 3


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"terminationGracePeriodSeconds": "120s"}},
        {"spec": {"terminationGracePeriodSeconds": True}},
        {"spec": {"containers": {"name": "engine"}}},
        {"spec": {"containers": ["engine"]}},
        {"spec": {"containers": [{"image": "no name"}]}},
        {"spec": {"volumes": [{}]}},
        {"spec": "none"},
        {"metadata": {"labels": ["a"]}},
        {"metadata": []},
    ],
)
def test_a_template_that_is_none_is_a_typed_error(template: Any) -> None:
    try:
        pod(template=template, model={"name": "chat", "uri": "pvc://c/m"})
    except TemplateError:
        return
    # What can be merged is for the API server to judge.
    assert template.get("spec") != "none"


def test_the_templates_labels_do_not_take_the_place_of_ours() -> None:
    labels = {"kvroll.dev/pool": "other", "kvroll.dev/admitted": "true", "kvroll.dev/protected": "false"}
    made = pod(template={"metadata": {"labels": labels}})["metadata"]["labels"]
    assert (made["kvroll.dev/pool"], made["kvroll.dev/protected"]) == ("p", "true")
    assert "kvroll.dev/admitted" not in made
