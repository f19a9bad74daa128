"""Generates the CRDs: `python -m kvroll_operator.api.crds --out crds/`."""

import argparse
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from kvroll_operator.api import DRAINS, GROUP, POOLS, VERSION, rules
from kvroll_operator.api.drain import DrainSpec
from kvroll_operator.api.pool import PoolSpec
from kvroll_operator.api.schema import structural
from kvroll_operator.api.status import DrainStatus, PoolStatus

_Column = tuple[str, str, str, int]
_POOL_COLUMNS: list[_Column] = [
    ("Model", "string", ".spec.model.name", 0),
    ("Weights", "string", ".spec.precision.weights", 0),
    ("KV", "string", ".spec.precision.kvCache", 0),
    ("Ready", "string", ".status.ready", 0),
    ("Updated", "string", ".status.updated", 0),
    ("Rollout", "string", ".status.rollout.phase", 0),
    ("Group", "string", ".status.rollout.group", 0),
    ("Sessions", "integer", ".status.sessions.active", 0),
    ("Lost", "integer", ".status.sessions.lost", 0),
    ("Gate", "string", ".status.gate.verdict", 0),
    ("Wall", "string", ".status.wall.verdict", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("From", "string", ".status.rollout.from", 1),
    ("To", "string", ".status.rollout.to", 1),
    ("Moved", "integer", ".status.rollout.sessions.moved", 1),
    ("Blocked", "string", ".status.blocked", 1),
    ("Revision", "string", ".status.updateRevision", 1),
]
_DRAIN_COLUMNS: list[_Column] = [
    ("Pod", "string", ".spec.podName", 0),
    ("Reason", "string", ".spec.reason", 0),
    ("Phase", "string", ".status.phase", 0),
    ("Left", "integer", ".status.remaining", 0),
    ("Exact", "integer", ".status.exact", 0),
    ("Converted", "integer", ".status.converted", 0),
    ("Replayed", "integer", ".status.replayed", 0),
    ("Lost", "integer", ".status.lost", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
]


def pool_crd() -> dict[str, Any]:
    """The CRD of InferencePool. Its resource is `kvpools`: the Gateway API Inference Extension owns `inferencepools` elsewhere."""
    about = "One model at one precision on N workers whose sessions survive a change of precision."
    crd = _crd("InferencePool", about, POOLS, "kvpool", ["kvp"], PoolSpec, PoolStatus, _POOL_COLUMNS)
    version = crd["spec"]["versions"][0]
    version["subresources"]["scale"] = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["precision"][rules.VALIDATIONS] = [rules.NO_SEALED_SKIP, rules.RESIDUAL_SEALS]
    properties["spec"]["properties"]["rollout"][rules.VALIDATIONS] = [rules.ROLLOUT_MOVES]
    properties["metadata"] = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}}}
    return crd


def drain_crd() -> dict[str, Any]:
    """The CRD of WorkerDrain."""
    about = "The drain of one worker: made by the operator; deleting it cancels the drain."
    crd = _crd("WorkerDrain", about, DRAINS, "kvdrain", [], DrainSpec, DrainStatus, _DRAIN_COLUMNS)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec[rules.VALIDATIONS] = [rules.rule("self == oldSelf", "spec is immutable: delete the WorkerDrain to cancel it")]
    return crd


def _crd(
    kind: str,
    about: str,
    plural: str,
    singular: str,
    short: list[str],
    spec: type[BaseModel],
    status: type[BaseModel],
    columns: list[_Column],
) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": singular,
        "categories": ["kvroll"],
    }
    if short:
        names["shortNames"] = short
    schema = {
        "type": "object",
        "description": about,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(spec),
            "status": structural(status, is_status=True),
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*column) for column in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


def render(crd: dict[str, Any]) -> str:
    """The file's text, the same at every run."""
    head = "# Generated by `python -m kvroll_operator.api.crds`; edit the models in operator/kvroll_operator/api instead.\n"
    return head + yaml.dump(crd, sort_keys=True, width=1000, Dumper=_NoAliases)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def main() -> None:
    """Writes both CRDs into a folder."""
    parser = argparse.ArgumentParser(prog="python -m kvroll_operator.api.crds", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    out: Path = parser.parse_args().out
    for crd in (pool_crd(), drain_crd()):
        plural = crd["spec"]["names"]["plural"]
        (out / f"{GROUP}_{plural}.yaml").write_text(render(crd))


if __name__ == "__main__":
    main()
