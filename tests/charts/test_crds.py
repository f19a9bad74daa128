"""charts/kvroll-crds carries exactly the definitions of crds/ and keeps them on uninstall."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from tests.charts.conftest import Render, one

ROOT = Path(__file__).parents[2]
NAMES = ("kvpools.kvroll.dev", "kvdrains.kvroll.dev")


def definitions() -> dict[str, dict[str, Any]]:
    found = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    return {crd["metadata"]["name"]: crd for crd in found}


def test_both_kinds_are_there() -> None:
    assert set(definitions()) == set(NAMES)


def test_the_chart_renders_them_unchanged_but_kept(render: Render) -> None:
    objects = render("kvroll-crds")
    assert {o["metadata"]["name"] for o in objects} == set(NAMES)
    for name, expected in definitions().items():
        found = one(objects, "CustomResourceDefinition", name)
        annotations = found["metadata"].pop("annotations")
        assert annotations.pop("helm.sh/resource-policy") == "keep"
        assert annotations == expected["metadata"].pop("annotations", {})
        assert found == expected
        kubernetes_validate.validate(found, "1.37", strict=True)


def test_they_go_with_the_release_when_asked_to(render: Render) -> None:
    for found in render("kvroll-crds", {"keep": False}):
        assert "helm.sh/resource-policy" not in found["metadata"].get("annotations", {})


def test_they_are_small_enough_for_kubectl_apply() -> None:
    """Client-side apply keeps a copy in an annotation, of at most 256 KiB."""
    for path in (ROOT / "crds").glob("*.yaml"):
        assert path.stat().st_size < 200 * 1024
