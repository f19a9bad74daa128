"""Types, bounds, enums and required fields of a structural schema, in Kubernetes' words where people read them."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema

Json = dict[str, Any]
_DROPPED = ("default", "format")


def validator(schema: Json) -> jsonschema.Draft202012Validator:
    """The checks of a structural schema; its `x-kubernetes-` words are read elsewhere."""
    return jsonschema.Draft202012Validator(_plain(schema))


def problems(checks: jsonschema.Draft202012Validator, body: Json) -> Iterator[tuple[str, str, str]]:
    """(path, reason, message) of everything wrong with it, as in the causes of a Status."""
    for error in sorted(checks.iter_errors(body), key=lambda e: [str(step) for step in e.absolute_path]):
        yield from _worded(error)


def _worded(error: jsonschema.ValidationError) -> Iterator[tuple[str, str, str]]:
    path = ""
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    path, value = path.lstrip("."), error.instance
    shown, bound = json.dumps(value), error.validator_value
    if error.validator == "required":
        for name in bound:
            if name not in value:
                yield f"{path}.{name}".lstrip("."), "FieldValueRequired", "Required value"
    elif error.validator == "enum":
        choices = ", ".join(json.dumps(choice) for choice in bound)
        yield path, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {choices}"
    elif error.validator == "type":
        yield path, "FieldValueTypeInvalid", f"Invalid value: {shown}: {path} in body must be of type {bound}: {shown}"
    else:
        words = _BOUNDS.get(str(error.validator))
        message = words.format(path=path, bound=bound) if words else error.message
        yield path, "FieldValueInvalid", f"Invalid value: {shown}: {message}"


_BOUNDS = {
    "minimum": "{path} in body should be greater than or equal to {bound}",
    "maximum": "{path} in body should be less than or equal to {bound}",
    "exclusiveMinimum": "{path} in body should be greater than {bound}",
    "exclusiveMaximum": "{path} in body should be less than {bound}",
    "minLength": "{path} in body should be at least {bound} chars long",
    "maxLength": "{path} in body should be at most {bound} chars long",
    "pattern": "{path} in body should match '{bound}'",
    "minItems": "{path} in body should have at least {bound} items",
    "maxItems": "{path} in body should have at most {bound} items",
    "minProperties": "{path} in body should have at least {bound} properties",
    "maxProperties": "{path} in body should have at most {bound} properties",
}


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: _plain(value)
        for key, value in schema.items()
        if key not in _DROPPED and not key.startswith("x-kubernetes-")
    }
    if schema.get("x-kubernetes-int-or-string"):
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return made
