"""One structural schema with everything that is enforced of it."""

from typing import Any

from kvroll_local.api.schema import checks, rules
from kvroll_local.api.schema.shape import shape

Json = dict[str, Any]
Problem = tuple[str, str, str]


class Schema:
    """The schema of one version of a CRD. Raises `rules.RuleUnusable` where one of its rules cannot be enforced."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.num_rules = rules.compile_all(root)
        self._checks = checks.validator(root)

    def shape(self, body: Json) -> tuple[Json, list[str]]:
        """The object without unknown fields and with defaults; and the paths of the fields that went."""
        return shape(self.root, body)

    def problems(self, new: Json, old: Json | None) -> list[Problem]:
        """(path, reason, message) of everything wrong with a shaped object. Rules are asked only where types and bounds hold."""
        found = list(checks.problems(self._checks, new))
        return found or [
            (path, "FieldValueInvalid", f"Invalid value: {message}")
            for path, message in rules.broken_rules(self.root, new, old)
        ]
