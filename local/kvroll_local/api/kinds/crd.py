"""Kinds made of a CustomResourceDefinition."""

from collections.abc import Iterator

from kvroll_local.api.kinds.components import METADATA, structural
from kvroll_local.api.kinds.kind import AGE, Json, Kind
from kvroll_local.api.schema.schema import Schema


class CrdUnusable(Exception):
    """A CRD that asks for something the embedded API server does not do."""


def kinds_of(crd: Json) -> Iterator[Kind]:
    """One kind a served version. Raises CrdUnusable, or RuleUnusable for a CEL rule that cannot be enforced."""
    spec, name = crd["spec"], crd["metadata"]["name"]
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        raise CrdUnusable(f"{name}: conversion webhooks are not called here; a Kubernetes cluster does that")
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        subresources = version.get("subresources") or {}
        yield Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            singular=names.get("singular", names["kind"].lower()),
            list_kind=names.get("listKind", ""),
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            generation=True,
            status="status" in subresources,
            scale=subresources.get("scale"),
            fields=tuple(entry["jsonPath"].lstrip(".") for entry in version.get("selectableFields") or ()),
            columns=tuple(version.get("additionalPrinterColumns") or (AGE,)),
            schema=Schema(version["schema"]["openAPIV3Schema"], structural(METADATA)),
        )
