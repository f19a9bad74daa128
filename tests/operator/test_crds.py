"""The checked-in CRDs are the generated ones, and are structural as far as can be told without an API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kvroll_core.precision.formats import HEADS, KV_FORMATS, WEIGHT_FORMATS
from kvroll_operator.api import GROUP
from kvroll_operator.api.crds import drain_crd, pool_crd, render
from kvroll_operator.api.pool import PoolSpec

CRDS = Path(__file__).parents[2] / "crds"
USUAL: dict[str, Any] = {
    "replicas": 3,
    "model": {"name": "chat", "uri": "pvc://models/llama"},
    "precision": {"weights": "bf16", "kvCache": "bf16"},
}


@pytest.mark.parametrize("crd", [pool_crd(), drain_crd()], ids=["kvpools", "kvdrains"])
def test_the_checked_in_file_is_the_generated_one(crd: dict[str, Any]) -> None:
    path = CRDS / f"{GROUP}_{crd['spec']['names']['plural']}.yaml"
    assert path.read_text() == render(crd), "run: python -m kvroll_operator.api.crds --out crds/"


def _nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key], f"{path}[]")


@pytest.mark.parametrize("crd", [pool_crd(), drain_crd()], ids=["kvpools", "kvdrains"])
def test_every_field_has_a_type_and_a_description(crd: dict[str, Any]) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, node in _nodes(schema):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "anyOf", "allOf", "title"} & node.keys(), path
        if path.startswith((".spec.", ".status.")) and not path.endswith("[]"):
            assert node.get("description"), path


def test_a_revision_has_no_defaults() -> None:
    spec = pool_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for part in ("model", "precision", "engine", "resources", "template"):
        assert all("default" not in node for _, node in _nodes(spec["properties"][part])), part


@pytest.mark.parametrize(("field", "formats"), [("kvCache", KV_FORMATS), ("weights", WEIGHT_FORMATS)])
def test_dtype_words_come_from_the_one_table(field: str, formats: dict[str, Any]) -> None:
    spec = pool_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    node = spec["properties"]["precision"]["properties"][field]
    assert node["enum"] == list(formats)
    (rule,) = node["x-kubernetes-validations"]
    built = [name for name, entry in formats.items() if entry.built]
    assert rule["rule"] == f"self in [{', '.join(repr(name) for name in built)}]"


def test_the_model_reads_what_the_api_server_stores() -> None:
    spec = PoolSpec.model_validate({**USUAL, "groups": {"size": 1}, "rollout": {"maxSurge": 2}})
    assert (spec.rollout.max_surge, spec.rollout.max_unavailable, spec.replicas) == (2, 0, 3)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="evacuation"):
        PoolSpec.model_validate({**USUAL, "evacuation": {}})


def test_the_knobs_of_a_precision_are_those_of_the_one_table() -> None:
    spec = pool_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    knobs = spec["properties"]["precision"]["properties"]
    assert knobs["weightBlockSize"]["enum"] == list(WEIGHT_FORMATS["int4"].block_sizes)
    assert knobs["head"]["enum"] == list(HEADS)
    layers = knobs["skipLayers"]
    assert (layers["maxItems"], layers["items"]["minimum"], layers["items"]["maximum"]) == (128, 0, 1023)
    assert layers["x-kubernetes-validations"][0]["rule"] == "self.all(a, self.exists_one(b, a == b))"
    skipped, _ = spec["properties"]["precision"]["x-kubernetes-validations"]
    assert skipped["rule"].endswith("!(self.kvCache in ['kivi2', 'kivi4'])")
