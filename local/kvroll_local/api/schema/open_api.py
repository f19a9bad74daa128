"""Structural schemas out of Kubernetes' OpenAPI components."""

from typing import Any

Json = dict[str, Any]
_REF = "#/components/schemas/"
_OPEN = "x-kubernetes-preserve-unknown-fields"
# The few types whose JSON is not what their schema says.
_SPECIAL: dict[str, Json] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {_OPEN: True},
}


class Components:
    """The components of OpenAPI documents; what they share is resolved once."""

    def __init__(self, components: Json) -> None:
        self._components = components
        self._resolved: dict[str, Json] = dict(_SPECIAL)

    def structural(self, name: str) -> Json:
        """One component with its references resolved. Its defaults go: in these documents they are the zero values of Go's structs."""
        if name not in self._resolved:
            self._resolved[name] = self._resolve(self._components[name])
        return self._resolved[name]

    def _resolve(self, node: Json) -> Json:
        if "$ref" in node:
            return self.structural(node["$ref"].removeprefix(_REF))
        if "allOf" in node:
            return self._resolve(node["allOf"][0])
        made: Json = {key: value for key, value in node.items() if key not in ("default", "description")}
        if "properties" in node:
            made["properties"] = {key: self._resolve(part) for key, part in node["properties"].items()}
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                made[key] = self._resolve(node[key])
        if node.get("type") == "object" and not {"properties", "additionalProperties"} & node.keys():
            made[_OPEN] = True
        return made
