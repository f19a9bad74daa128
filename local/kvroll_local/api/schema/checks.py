"""Types, bounds, enums and required fields of a structural schema, in Kubernetes' words where people read them."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema

Json = dict[str, Any]
Problem = tuple[str, str, str]
TYPE_INVALID = "FieldValueTypeInvalid"
_INTEGERS = {"int32": 2**31, "int64": 2**63}
_DATE_TIME = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
_KEPT = (
    "type", "required", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip
_WORDS = {
    "minimum": "should be greater than or equal to {bound}",
    "maximum": "should be less than or equal to {bound}",
    "exclusiveMinimum": "should be greater than {bound}",
    "exclusiveMaximum": "should be less than {bound}",
    "multipleOf": "should be a multiple of {bound}",
    "minLength": "should be at least {bound} chars long",
    "maxLength": "should be at most {bound} chars long",
    "pattern": "should match '{bound}'",
    "minItems": "should have at least {bound} items",
    "maxItems": "should have at most {bound} items",
    "minProperties": "should have at least {bound} properties",
    "maxProperties": "should have at most {bound} properties",
}


def validator(schema: Json) -> jsonschema.Draft202012Validator:
    """The checks of a structural schema; its rules are read elsewhere."""
    return jsonschema.Draft202012Validator(_plain(schema))


def problems(checks: jsonschema.Draft202012Validator, schema: Json, new: Json, old: Json | None) -> Iterator[Problem]:
    """(path, reason, message) of everything wrong with it, as in the causes of a Status.

    What an update leaves as it was is not judged again: an object that was valid before its CRD became stricter can still be changed.
    """
    for error in sorted(checks.iter_errors(new), key=lambda e: [str(step) for step in e.absolute_path]):
        if old is None or not _unchanged(schema, new, old, list(error.absolute_path)):
            yield from _worded(error)


def list_item(schema: Json, items: Any, item: Any) -> Any:
    """The item of another list that this one stands for: the one with the same keys. None in a list without keys."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(items, list) or not isinstance(item, dict):
        return None
    named = [item.get(key) for key in keys]
    return next((o for o in items if isinstance(o, dict) and [o.get(key) for key in keys] == named), None)


def _unchanged(schema: Json, new: Any, old: Any, path: Sequence[str | int]) -> bool:
    for step in path:
        if new == old:
            return True
        if isinstance(new, list):
            new = new[int(step)]
            old, schema = list_item(schema, old, new), schema.get("items", {})
        else:
            new, old = new.get(step), old.get(step) if isinstance(old, dict) else None
            part = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
            schema = part if isinstance(part, dict) else {}
        if old is None:
            return False
    return bool(new == old)


def _worded(error: jsonschema.ValidationError) -> Iterator[Problem]:
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
    elif error.validator in ("type", "anyOf"):
        named = bound[0] if isinstance(bound, list) and isinstance(bound[0], str) else bound
        named = named if isinstance(named, str) else " or ".join(choice["type"] for choice in named)
        yield path, TYPE_INVALID, f"Invalid value: {shown}: {path} in body must be of type {named}: {shown}"
    else:
        words = _WORDS.get(str(error.validator))
        message = f"{path} in body {words.format(bound=bound)}" if words else error.message
        yield path, "FieldValueInvalid", f"Invalid value: {shown}: {message}"


def _plain(schema: Json) -> Json:
    """The schema in the words of JSON Schema."""
    made: Json = {key: schema[key] for key in _KEPT if key in schema}
    if "properties" in schema:
        made["properties"] = {key: _plain(part) for key, part in schema["properties"].items()}
    for key in ("items", "additionalProperties", "not"):
        if key in schema:
            made[key] = _plain(schema[key]) if isinstance(schema[key], dict) else schema[key]
    for key in ("allOf", "anyOf", "oneOf"):
        if key in schema:
            made[key] = [_plain(part) for part in schema[key]]
    if schema.get("x-kubernetes-int-or-string"):
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    _add_format(schema, made)
    if "pattern" in schema:
        made["pattern"] = _whole(schema["pattern"])
    if schema.get("nullable") and "type" in made:
        made["type"] = [made["type"], "null"]
        if "enum" in made:
            made["enum"] = [*made["enum"], None]
    return made


def _add_format(schema: Json, made: Json) -> None:
    word = schema.get("format", "")
    if schema.get("type") == "integer" and word in _INTEGERS:
        made.setdefault("minimum", -_INTEGERS[word])
        made.setdefault("maximum", _INTEGERS[word] - 1)
    elif word == "date-time":
        made["pattern"] = _whole(_DATE_TIME)


def _whole(pattern: str) -> str:
    """Go's `$` is the end of the text; Python's stands before a last line break too."""
    return re.sub(r"(\\.|\[(?:\\.|[^\]\\])*\])|\$", lambda found: found[1] or r"\Z", pattern)
