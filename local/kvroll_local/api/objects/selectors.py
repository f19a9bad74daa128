"""Label and field selectors."""

import re
from collections.abc import Callable, Collection
from typing import Any

from kvroll_local.api.objects.refused import Json, Refused

Selector = Callable[[Json], bool]
_TERM = re.compile(
    r"\s*(?P<key>[^\s=!<>(),]+)\s*(?:(?P<op>==|=|!=|\s+in|\s+notin)\s*(?P<value>\([^()]*\)|[^\s,()]*)\s*)?"
)


def label_selector(text: str) -> Selector:
    """Whether an object's labels match. Raises Refused where the text is no selector."""
    tests = [_label_term(term, text) for term in re.split(r",(?![^(]*\))", text) if term.strip()]
    return lambda o: all(test(o["metadata"].get("labels") or {}) for test in tests)


def _label_term(term: str, text: str) -> Selector:
    if absent := re.fullmatch(r"\s*!\s*([^\s=!<>(),]+)\s*", term):
        return lambda labels: absent[1] not in labels
    found = _TERM.fullmatch(term)
    if not found:
        raise Refused(
            400,
            "BadRequest",
            f"unable to parse requirement in label selector {text!r}: "
            f"expected key=value, key!=value, key in (a,b), key notin (a,b), key or !key, found {term!r}",
        )
    key, op, value = found["key"], (found["op"] or "").strip(), found["value"] or ""
    if not op:
        return lambda labels: key in labels
    if op in ("in", "notin"):
        if not value.startswith("("):
            raise Refused(
                400,
                "BadRequest",
                f"unable to parse requirement in label selector {text!r}: expected a list like (a,b) after {op}",
            )
        values = {part.strip() for part in value[1:-1].split(",")}
        return (
            (lambda labels: labels.get(key) in values) if op == "in" else (lambda labels: labels.get(key) not in values)
        )
    return (lambda labels: labels.get(key) != value) if op == "!=" else (lambda labels: labels.get(key) == value)


def field_selector(text: str, fields: Collection[str]) -> Selector:
    """Whether fields of an object, by dotted path, have these values.

    Raises Refused where the text is no selector, or names another field.
    """
    tests = []
    for term in filter(None, text.split(",")):
        found = re.fullmatch(r"\s*([\w./-]+)\s*(==|=|!=)\s*(.*?)\s*", term)
        if not found:
            raise Refused(
                400,
                "BadRequest",
                f"invalid field selector {text!r}: expected path=value or path!=value, found {term!r}",
            )
        if found[1] not in fields:
            known = ", ".join(fields)
            raise Refused(400, "BadRequest", f"field label not supported: {found[1]}; expected one of {known}")
        tests.append((found[1].split("."), found[2] != "!=", found[3]))
    return lambda o: all((_field(o, path) == value) == wanted for path, wanted, value in tests)


def _field(o: Any, path: list[str]) -> str:
    for step in path:
        o = o.get(step) if isinstance(o, dict) else None
    return "" if o is None else str(o)
