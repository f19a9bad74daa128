"""JSON patch (RFC 6902)."""

import copy
from typing import Any


class PatchFailed(Exception):
    """The patch does not fit the object."""


def json_patch(live: Any, operations: Any) -> Any:
    """`live` after all operations. Raises PatchFailed where one of them does not apply."""
    if not isinstance(operations, list):
        raise PatchFailed(f"expected a list of operations, found {type(operations).__name__}")
    made = {"": copy.deepcopy(live)}
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchFailed(f"expected an operation like {{op, path, value}}, found {operation!r}")
        _operate(made, operation)
    return made[""]


def _operate(made: dict[str, Any], operation: dict[str, Any]) -> None:
    name, path = operation.get("op"), _steps(operation.get("path"))
    if name in ("add", "replace", "test") and "value" not in operation:
        raise PatchFailed(f"{name} {operation['path']}: value is missing")
    if name == "test":
        if _get(made, path) != operation["value"]:
            raise PatchFailed(f"test {operation['path']}: the value is {_get(made, path)!r}")
    elif name == "remove":
        _remove(made, path)
    elif name == "replace":
        _get(made, path)
        _remove(made, path)
        _add(made, path, copy.deepcopy(operation["value"]))
    elif name == "add":
        _add(made, path, copy.deepcopy(operation["value"]))
    elif name in ("move", "copy"):
        value = copy.deepcopy(_get(made, _steps(operation.get("from"))))
        if name == "move":
            _remove(made, _steps(operation["from"]))
        _add(made, path, value)
    else:
        raise PatchFailed(f"expected op add, remove, replace, move, copy or test, found {name!r}")


def _steps(path: Any) -> list[str]:
    """The keys of a pointer, below one more mapping so that the whole document has a parent too."""
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise PatchFailed(f"expected a path like /metadata/labels/a, found {path!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]


def _index(at: list[Any], step: str, last: int) -> int:
    if not step.isdecimal() or int(step) > last:
        raise PatchFailed(f"expected an index of 0 to {last}, found {step!r}")
    return int(step)


def _get(at: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(at, list):
            at = at[_index(at, step, len(at) - 1)]
        elif isinstance(at, dict) and step in at:
            at = at[step]
        else:
            raise PatchFailed(f"there is nothing at {'/'.join(path)}")
    return at


def _remove(made: Any, path: list[str]) -> None:
    parent = _get(made, path[:-1])
    if isinstance(parent, list):
        parent.pop(_index(parent, path[-1], len(parent) - 1))
    elif not isinstance(parent, dict) or path[-1] not in parent:
        raise PatchFailed(f"there is nothing at {'/'.join(path)}")
    else:
        del parent[path[-1]]


def _add(made: Any, path: list[str], value: Any) -> None:
    parent = _get(made, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else _index(parent, path[-1], len(parent)), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise PatchFailed(f"{'/'.join(path[:-1])} is neither an object nor a list")
