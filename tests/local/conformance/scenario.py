"""What the table of requests is written in: steps with an expected answer, run in order in a namespace of their own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

POOLS = "/apis/kvroll.dev/v1alpha1/namespaces/NS/kvpools"
DRAINS = "/apis/kvroll.dev/v1alpha1/namespaces/NS/kvdrains"
PODS = "/api/v1/namespaces/NS/pods"
MAPS = "/api/v1/namespaces/NS/configmaps"
REVISIONS = "/apis/apps/v1/namespaces/NS/controllerrevisions"
MERGE, JSON_PATCH, APPLY = (
    f"application/{word}" for word in ("merge-patch+json", "json-patch+json", "apply-patch+yaml")
)
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Has:
    """A text that holds all of these."""

    words: tuple[str, ...]


class Absent:
    """No such key."""


ABSENT, ANY = Absent(), object()


def has(*words: str) -> Has:
    return Has(words)


@dataclass(frozen=True)
class Step:
    """One request and the answer to it. `keep` names parts of the answer that later steps write as `{name}`."""

    method: str
    path: str
    code: int
    expect: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    content: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, str] = field(default_factory=dict)
    warns: str = ""


def patch(
    path: str, body: Any, code: int = 200, expect: Mapping[str, Any] | None = None, how: str = MERGE, **more: Any
) -> Step:
    return Step("PATCH", path, code, expect or {}, body, how, **more)


def get(path: str, code: int = 200, expect: Mapping[str, Any] | None = None, **more: Any) -> Step:
    return Step("GET", path, code, expect or {}, **more)


def post(path: str, body: Any, code: int = 201, expect: Mapping[str, Any] | None = None, **more: Any) -> Step:
    return Step("POST", path, code, expect or {}, body, **more)


def put(path: str, body: Any, code: int = 200, expect: Mapping[str, Any] | None = None, **more: Any) -> Step:
    return Step("PUT", path, code, expect or {}, body, **more)


def delete(path: str, code: int = 200, expect: Mapping[str, Any] | None = None, body: Any = None) -> Step:
    return Step("DELETE", path, code, expect or {}, body)


async def run(steps: list[Step], client: httpx.AsyncClient, namespace: str) -> None:
    """Makes every request and compares every answer."""
    kept: dict[str, str] = {}
    for number, step in enumerate(steps):
        path = step.path.replace("/NS/", f"/{namespace}/").replace("NSNAME", namespace)
        body = _filled(step.body, kept | {"NS": namespace})
        headers = {**step.headers, "Content-Type": step.content}
        answer = await client.request(step.method, _filled(path, kept), json=body, headers=headers)
        where = f"step {number}: {step.method} {path} answered {answer.status_code} {answer.text[:2000]}"
        assert answer.status_code == step.code, where
        found = answer.json() if answer.text.startswith("{") else {"text": answer.text}
        problem = differs(found, _filled(step.expect, kept | {"NS": namespace}))
        assert not problem, f"{problem}\n{where}"
        assert step.warns in answer.headers.get("warning", ""), f"warning {answer.headers.get('warning')!r}\n{where}"
        for name, place in step.keep.items():
            value: Any = found
            for key in place.split("."):
                value = value[int(key)] if isinstance(value, list) else value[key]
            kept[name] = str(value)


def differs(found: Any, expected: Any, path: str = "") -> str:
    """Where an answer is not what the table says; empty where it is. Objects may hold more than is expected."""
    if expected is ANY:
        return ""
    if isinstance(expected, Has):
        missing = [word for word in expected.words if word not in str(found)]
        return f"{path}: {missing} not in {found!r}" if missing else ""
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            return f"{path}: expected an object, found {found!r}"
        for key, value in expected.items():
            if value is ABSENT:
                if key in found:
                    return f"{path}.{key}: expected nothing, found {found[key]!r}"
            elif key not in found:
                return f"{path}.{key}: expected {value!r}, found nothing"
            elif problem := differs(found[key], value, f"{path}.{key}"):
                return problem
        return ""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{path}: expected {len(expected)} items, found {found!r}"
        return next(
            (p for i, (f, e) in enumerate(zip(found, expected, strict=True)) if (p := differs(f, e, f"{path}[{i}]"))),
            "",
        )
    return "" if found == expected else f"{path}: expected {expected!r}, found {found!r}"


def _filled(value: Any, kept: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: kept.get(found[1], found[0]), value)
    if isinstance(value, Has):
        return Has(tuple(_filled(word, kept) for word in value.words))
    if isinstance(value, Mapping):
        return {key: _filled(part, kept) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, kept) for part in value]
    return value
