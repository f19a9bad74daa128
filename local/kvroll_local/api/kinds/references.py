"""References between the components of an OpenAPI document."""

from collections.abc import Iterator
from typing import Any

REF = "#/components/schemas/"


def refs(node: Any) -> Iterator[str]:
    """The components that a schema names, however deep."""
    if isinstance(node, list):
        for part in node:
            yield from refs(part)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(REF)
        for part in node.values():
            yield from refs(part)
