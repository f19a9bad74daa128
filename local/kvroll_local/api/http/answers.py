"""Answers: objects, lists, Tables, Status."""

import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from kvroll_local.api.http.call import Call
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.views import events
from kvroll_local.api.views.table import table


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def answer(value: Any, code: int = 200) -> Response:
    return Response(encoded(value), code, media_type="application/json")


def refusal(error: Refused) -> Response:
    return answer(error.status(), error.code)


def one(call: Call, o: Json, code: int = 200) -> Response:
    """One object, as a Table where a read asks for it."""
    if call.wants_table and call.method == "GET":
        return answer(as_table(call, [o], {"resourceVersion": o["metadata"]["resourceVersion"]}))
    return answer(events.shown(call.kind, o), code)


def many(call: Call, items: Sequence[Json], version: int) -> Response:
    metadata = {"resourceVersion": str(version)}
    if call.wants_table:
        return answer(as_table(call, items, metadata))
    shown = [events.shown(call.kind, o) for o in items]
    list_kind = call.kind.list_kind or f"{call.kind.kind}List"
    return answer({"kind": list_kind, "apiVersion": call.kind.api_version, "metadata": metadata, "items": shown})


def as_table(call: Call, items: Sequence[Json], metadata: Json) -> Json:
    return table(call.kind.columns, [events.shown(call.kind, o) for o in items], metadata, call.query("includeObject"))
