"""Events in the words of both groups: stored as events.k8s.io/v1, shown in the core group's words where asked there."""

from kvroll_local.api.kinds.kind import Json, Kind

_TO_CORE = {
    "note": "message", "regarding": "involvedObject", "reportingController": "reportingComponent", "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count",
}  # fmt: skip
_FROM_CORE = {core: new for new, core in _TO_CORE.items()}


def shown(kind: Kind, o: Json) -> Json:
    """The object as this group has it."""
    if kind.kind != "Event":
        return o
    if kind.group:
        return {**o, "apiVersion": kind.api_version}
    return {"source": {}} | {_TO_CORE.get(key, key): value for key, value in o.items()} | {"apiVersion": "v1"}


def taken(kind: Kind, o: Json) -> Json:
    """The object as it is stored."""
    if kind.kind != "Event" or kind.group:
        return o
    return {_FROM_CORE.get(key, key): value for key, value in o.items()}
