"""A pydantic model's JSON schema made structural, as CustomResourceDefinitions demand it."""

from typing import Any

from pydantic import BaseModel

_KEPT = frozenset(
    {
        "type",
        "description",
        "enum",
        "default",
        "format",
        "pattern",
        "required",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
    }
)


def structural(model: type[BaseModel], *, is_status: bool = False) -> dict[str, Any]:
    """The schema of `model`: references inlined, `X | None` as an optional X, kubernetes extensions kept.

    A status gets neither defaults nor required fields, so that an older operator's status stays valid. Defaults of a spec stay: they are of
    knobs that are no part of a revision (a default inside a revision's content would change it when a version adds one).
    """
    document = model.model_json_schema(by_alias=True)
    schema = _convert(document, document.get("$defs", {}), is_status=is_status)
    schema["description"] = (model.__doc__ or "").strip()
    return schema


def _convert(node: dict[str, Any], definitions: dict[str, Any], *, is_status: bool) -> dict[str, Any]:
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        return _convert({**target, **siblings}, definitions, is_status=is_status)
    if node.get("x-kubernetes-int-or-string"):
        return {"x-kubernetes-int-or-string": True}
    if "anyOf" in node:
        (only,) = [option for option in node["anyOf"] if option.get("type") != "null"]
        siblings = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return _convert({**only, **siblings}, definitions, is_status=is_status)
    dropped = ("default", "required") if is_status else ()
    out = {key: value for key, value in node.items() if key in _KEPT and key not in dropped}
    out.update({key: value for key, value in node.items() if key.startswith("x-kubernetes-")})
    if "properties" in node:
        out["properties"] = {
            name: _convert(child, definitions, is_status=is_status) for name, child in node["properties"].items()
        }
    if isinstance(node.get("additionalProperties"), dict) and node["additionalProperties"]:
        out["additionalProperties"] = _convert(node["additionalProperties"], definitions, is_status=is_status)
    if "items" in node:
        out["items"] = _convert(node["items"], definitions, is_status=is_status)
    if is_status and "x-kubernetes-list-map-keys" in out:
        out["items"]["required"] = list(out["x-kubernetes-list-map-keys"])
    if out.get("type") == "integer":
        out["format"] = "int64"
    return out
