"""One structural schema with everything that is enforced of it."""

import json
import re
from typing import Any

from kvroll_local.api.schema import checks, rules
from kvroll_local.api.schema.checks import Problem
from kvroll_local.api.schema.shape import shape

Json = dict[str, Any]


class Schema:
    """The schema of one kind, and that of every object's metadata. Raises `rules.RuleUnusable` for a rule that cannot be enforced."""

    def __init__(self, root: Json, metadata: Json) -> None:
        self.root, self._metadata = root, metadata
        self.num_rules = rules.compile_all(root)
        self._checks = checks.validator(root)
        self._metadata_checks = checks.validator({"type": "object", "properties": {"metadata": metadata}})

    def shape(self, body: Json) -> tuple[Json, list[str]]:
        """The object without unknown fields and with defaults; and the paths of the fields that went."""
        return shape(self.root, self._metadata, body)

    def malformed(self, body: Json) -> list[Problem]:
        """(path, reason, message) of what in the metadata has the wrong type."""
        return list(checks.problems(self._metadata_checks, {}, body, None))

    def problems(self, new: Json, old: Json | None) -> list[Problem]:
        """(path, reason, message) of everything wrong with a shaped object. Rules are asked only where types and bounds hold."""
        found = list(checks.problems(self._checks, self.root, new, old))
        return found or [
            (path, "FieldValueInvalid", f"Invalid value: {_named(new, path)}: {message}")
            for path, message in rules.broken_rules(self.root, new, old)
        ]


def _named(new: Json, path: str) -> str:
    """How Kubernetes names the value that a rule refuses: objects and lists by their kind alone."""
    value: Any = new
    for step in re.findall(r"[^.\[\]]+", path):
        value = value[int(step)] if isinstance(value, list) else value.get(step)
    if isinstance(value, dict | list):
        return '"object"' if isinstance(value, dict) else '"array"'
    return json.dumps(value)
