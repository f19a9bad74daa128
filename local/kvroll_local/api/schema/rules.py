"""`x-kubernetes-validations`: CEL rules of a schema, compiled once, evaluated at every write."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import cel

from kvroll_local.api.schema.checks import list_item
from kvroll_local.api.schema.functions import FUNCTIONS
from kvroll_local.api.schema.typed import typed

Json = dict[str, Any]
RULES = "x-kubernetes-validations"


class RuleUnusable(Exception):
    """A rule of a CRD that cannot be compiled, or that calls a function which is not built."""


_BUILT_IN_FUNCTIONS = {
    *("size", "contains", "min", "max", "endsWith", "startsWith", "matches", "int", "uint", "double", "string", "bool", "bytes",
      "type", "dyn", "timestamp", "duration"),
}  # fmt: skip


@cache
def compiled(source: str) -> Any:
    """The program of one rule. Raises RuleUnusable."""
    try:
        program = cel.compile(source)
    except Exception as error:
        raise RuleUnusable(f"{source}: {error}") from error
    called = {name for name in program.functions() if re.fullmatch(r"[A-Za-z]\w*", name)}
    if missing := called - FUNCTIONS.keys() - _BUILT_IN_FUNCTIONS:
        raise RuleUnusable(f"{source}: {', '.join(sorted(missing))} is not built in the embedded API server")
    return program


def evaluate(source: str, value: Any, old: Any = None) -> Any:
    """What the expression gives with `self` and, where there is one, `oldSelf`. Raises whatever the evaluation raises."""
    scope = {"self": value} if old is None else {"self": value, "oldSelf": old}
    return compiled(source).execute(cel.Context(scope, functions=FUNCTIONS))


def is_transition(source: str) -> bool:
    """Whether a rule compares with the past: it is then left out where there is none."""
    return "oldSelf" in compiled(source).variables()


def compile_all(schema: Json) -> int:
    """Compiles every rule below a schema and counts them. Raises RuleUnusable for the first that cannot be."""
    count = 0
    for node in _schemas(schema):
        for rule in node.get(RULES, ()):
            is_transition(rule["rule"])
            if "messageExpression" in rule:
                compiled(rule["messageExpression"])
            count += 1
    return count


def broken_rules(schema: Json, new: Any, old: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, message) of every rule that does not hold. An evaluation error is a rule that does not hold.

    What an update leaves as it was is not judged again. A list without keys has no past: its items are judged each time.
    """
    if old is not None and new == old:
        return
    for rule in schema.get(RULES, ()):
        if old is None and is_transition(rule["rule"]):
            continue
        message = _broken(rule, typed(schema, new), None if old is None else typed(schema, old))
        if message is not None:
            yield path, message
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for key, value in new.items():
            part = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if isinstance(part, dict):
                yield from broken_rules(part, value, before.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(new, list) and isinstance(schema.get("items"), dict):
        for i, value in enumerate(new):
            yield from broken_rules(schema["items"], value, list_item(schema, old, value), f"{path}[{i}]")


def _broken(rule: Json, new: Any, old: Any) -> str | None:
    try:
        if evaluate(rule["rule"], new, old) is True:
            return None
    except (
        Exception
    ) as error:  # whatever the library raises: a rule that cannot be evaluated must not let the object in
        return f"{rule['rule']}: {error}"
    if "messageExpression" in rule:
        try:
            return str(evaluate(rule["messageExpression"], new, old))
        except Exception:  # as in Kubernetes: the plain message then
            pass
    return str(rule.get("message", f"failed rule: {rule['rule']}"))


def _schemas(schema: Any) -> Iterator[Json]:
    if not isinstance(schema, dict):
        return
    yield schema
    for part in schema.get("properties", {}).values():
        yield from _schemas(part)
    yield from _schemas(schema.get("items"))
    yield from _schemas(schema.get("additionalProperties"))
