"""One name, one thing: no two public classes of the product have the same name."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.core.test_guards import sources
from tests.core.test_guards_laws import tree_of

ROOMS = ("core", "operator", "gateway", "worker", "kernels", "cli", "local")
SHARED = {
    # The same thing in two rooms that may not import each other: what each serves, or cannot compare.
    "Metrics", "NotComparableError",
    # A shape of the API beside the thing that it asks for.
    "Engine", "Precision",
    # To be renamed: a ratchet.
    "Ask", "Seen", "View",
}  # fmt: skip
"""Names that stand twice. Take one off when its second is renamed; add none."""


def defined() -> dict[str, list[Path]]:
    """The public classes at the top of the product's modules, and where."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sources(".py"):
        if path.parts[0] in ROOMS:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(path)
    return found


def test_one_name_is_one_thing() -> None:
    twice = {name: paths for name, paths in defined().items() if len(paths) > 1 and name not in SHARED}
    assert not twice, "name it for what it is of (GatewaySession, DrainTarget):\n  " + "\n  ".join(
        f"{name}: {', '.join(map(str, paths))}" for name, paths in sorted(twice.items())
    )


def test_the_list_of_shared_names_has_only_those_that_are() -> None:
    found = defined()
    assert not (alone := sorted(name for name in SHARED if len(found[name]) < 2)), f"take these off SHARED: {alone}"
