"""Generates `built_in.json`, the schemas of the built-in kinds, from Kubernetes' own OpenAPI documents: `make local-schemas`."""

import argparse
import json
from pathlib import Path
from typing import Any

from kvroll_local.api.kinds.references import refs

Json = dict[str, Any]
OUT = Path(__file__).parent / "built_in.json"
_KINDS = {
    "api__v1": ["Pod", "Service", "ConfigMap", "Namespace"],
    "apis__apps__v1": ["ControllerRevision"],
    "apis__policy__v1": ["PodDisruptionBudget"],
    "apis__events.k8s.io__v1": ["Event"],
}


def generated(specs: Path, version: str) -> Json:
    """The components that the kinds need, and each kind's component by `apiVersion/kind`."""
    components: Json = {}
    kinds: Json = {}
    for name, wanted in _KINDS.items():
        schemas = json.loads((specs / f"{name}_openapi.json").read_text())["components"]["schemas"]
        for component, schema in schemas.items():
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                if kind["kind"] in wanted and len(schema["x-kubernetes-group-version-kind"]) == 1:
                    kinds["/".join(filter(None, (kind["group"], kind["version"], kind["kind"])))] = component
                    _take(component, schemas, components)
    return {"kubernetes": version, "kinds": dict(sorted(kinds.items())), "components": dict(sorted(components.items()))}


def _take(name: str, schemas: Json, taken: Json) -> None:
    if name in taken:
        return
    taken[name] = schemas[name]
    for needed in refs(schemas[name]):
        _take(needed, schemas, taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubernetes", type=Path, required=True, metavar="DIR", help="the source of Kubernetes")
    parser.add_argument("--version", required=True, help="its version, as cluster/go.mod names it")
    args = parser.parse_args()
    made = generated(args.kubernetes / "api" / "openapi-spec" / "v3", args.version)
    OUT.write_text(json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
