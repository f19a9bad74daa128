"""What `kvroll up` is given, what it refuses by name, and when it calls a pool complete."""

from pathlib import Path
from typing import Any

import pytest

from kvroll_local.up import documents
from kvroll_local.up.errors import UpError
from kvroll_local.up.progress import progress

Json = dict[str, Any]


def model(folder: Path) -> str:
    (folder / "config.json").write_text("{}")
    return folder.as_uri()


def spec(folder: Path, **changes: Any) -> Json:
    usual = {"model": {"name": "m", "uri": model(folder)}, "precision": {"weights": "bf16", "kvCache": "bf16"}}
    return usual | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"uri": "pvc://claim/m"}}, "spec.model.uri: pvc://claim/m names a volume claim"),
        ({"model": {"uri": "hf://org/m"}}, "spec.model.uri: expected file:///folder of this machine, found hf://org/m"),
        (
            {"model": {"uri": "file:///no/such/folder"}},
            "expected a folder with config.json, found none at /no/such/folder",
        ),
        ({"engine": {"image": "x:1"}}, "spec.engine.image: no image is run here"),
        ({"gate": {"source": "Job"}}, "spec.gate.source: Job needs images"),
        ({"template": {"spec": {"volumes": [{"name": "v"}]}}}, "spec.template.spec.volumes: there are no mounts"),
        ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, "spec.template.spec.nodeSelector: there is one node"),
        (
            {"template": {"spec": {"containers": [{"name": "engine", "image": "x"}]}}},
            "spec.template.spec.engine.image: no image is run here",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "side"}]}}},
            "spec.template.spec.side: no image is run here, so expected a command",
        ),
        (
            {
                "template": {
                    "spec": {
                        "containers": [{"name": "engine", "env": [{"name": "T", "valueFrom": {"secretKeyRef": {}}}]}]
                    }
                }
            },
            "T: expected a value or a fieldRef, found secretKeyRef",
        ),
    ],
)
def test_what_one_machine_cannot_do_is_refused_by_its_path(tmp_path: Path, changes: Json, said: str) -> None:
    pool = {"kind": "InferencePool", "metadata": {"name": "chat"}, "spec": spec(tmp_path, **changes)}
    with pytest.raises(UpError) as refused:
        documents.check([pool])
    assert f"chat: {said}" in str(refused.value) or said in str(refused.value)


@pytest.mark.parametrize(
    "broken",
    [{"gate": 3}, {"engine": []}, {"model": "x"}, {"model": {"uri": 7}}, {"template": []}, {"template": {"spec": 1}}],
)
def test_wrong_shapes_are_left_to_the_api_server_or_refused_but_never_crash(tmp_path: Path, broken: Json) -> None:
    documents.refusals(spec(tmp_path, **broken))


@pytest.mark.parametrize("containers", [3, [1], ["a"], [{"name": "a", "env": 5}], [{"name": "a", "env": [{}, 3]}]])
def test_a_template_of_another_shape_is_refused(tmp_path: Path, containers: Any) -> None:
    found = documents.refusals(spec(tmp_path, template={"spec": {"containers": containers}}))
    assert found
    assert all(problem.startswith("spec.template.spec") for problem in found)


def test_every_reason_is_said_at_once_and_a_plain_pool_has_none(tmp_path: Path) -> None:
    plain = spec(
        tmp_path, template={"spec": {"containers": [{"name": "engine", "env": [{"name": "A", "value": "1"}]}]}}
    )
    assert documents.refusals(plain) == []
    assert len(documents.refusals(plain | {"engine": {"image": "x"}, "gate": {"source": "Job"}})) == 2


def test_a_file_may_hold_a_pool_and_its_dataset(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: questions}\n---\n"
        "apiVersion: kvroll.dev/v1alpha1\nkind: InferencePool\nmetadata: {name: chat, namespace: here}\nspec: {}\n---\n"
    )
    found = documents.read(path)
    assert [d["kind"] for d in found] == ["ConfigMap", "InferencePool"]
    assert documents.namespace(found, "default") == "here"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}", "found Deployment (apps/v1)"),
        ("kind: InferencePool\napiVersion: v1\nmetadata: {name: x}", "found InferencePool (v1)"),
        ("kind: InferencePool\napiVersion: kvroll.dev/v1alpha1", "expected metadata.name"),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}", "expected an InferencePool, found none"),
        ("- 1", "found list"),
        ("kind: InferencePool\napiVersion: kvroll.dev/v1alpha1\nmetadata: 3", "expected metadata.name"),
        ("a: [", "is no YAML"),
        ("", "expected an InferencePool, found none"),
    ],
)
def test_other_files_are_refused_with_what_was_found(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(text)
    with pytest.raises(UpError) as refused:
        documents.read(path)
    assert said in str(refused.value)


def test_two_namespaces_are_refused() -> None:
    both = [{"metadata": {"name": "a", "namespace": "x"}}, {"metadata": {"name": "b", "namespace": "y"}}]
    with pytest.raises(UpError, match="expected one namespace, found x, y"):
        documents.namespace(both, "default")


# --- complete ------------------------------------------------------------------------------------------------------------


def pool(generation: int = 2, observed: int = 2, complete: str = "True") -> Json:
    condition = {"type": "RolloutComplete", "status": complete, "observedGeneration": observed}
    rollout = {"phase": "Complete", "group": "2/2"}
    return {
        "metadata": {"name": "chat", "generation": generation},
        "spec": {"replicas": 2},
        "status": {"conditions": [condition], "rollout": rollout},
    }


def pod(name: str, ready: bool = True, **status: Any) -> Json:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    labels = {"kvroll.dev/admitted": "true"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [condition], **status}}


@pytest.mark.parametrize(
    ("object_", "pods", "complete"),
    [
        (pool(), [pod("a"), pod("b")], True),
        (pool(complete="False"), [pod("a"), pod("b")], False),
        (pool(observed=1), [pod("a"), pod("b")], False),  # of an older spec
        (pool(), [pod("a"), pod("b", ready=False)], False),  # of before a crash
        (pool(), [], False),
    ],
)
def test_an_older_status_makes_nothing_complete(object_: Json, pods: list[Json], complete: bool) -> None:
    assert progress(object_, pods).is_complete is complete


def test_why_a_worker_does_not_come_up_is_said() -> None:
    waiting = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]}
    ended = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2, "message": "a\nerror: too big"}},
    }
    found = progress(pool(), [pod("a", False, **waiting), pod("b", False, containerStatuses=[ended])])
    assert (
        str(found)
        == "chat: 0 of 2 workers serve; a waits: 0/1 nodes are available; b ended with code 2: error: too big"
    )
