"""Events are forgotten an hour after they last happened, as in Kubernetes."""

from datetime import UTC, datetime, timedelta

from kvroll_local.api.objects.refused import Json
from kvroll_local.api.store.event import Key
from kvroll_local.api.store.store import Store

EVENT_HOURS = 1.0
_RESOURCE = "/events"


def expired_events(store: Store, now: datetime) -> list[Key]:
    """The events that have not happened again since."""
    since = now - timedelta(hours=EVENT_HOURS)
    return [
        Key(_RESOURCE, o["metadata"]["namespace"], o["metadata"]["name"])
        for o in store.list(_RESOURCE)
        if _last(o) < since
    ]


def _last(o: Json) -> datetime:
    stamps = [
        o["metadata"]["creationTimestamp"],
        (o.get("series") or {}).get("lastObservedTime"),
        o.get("deprecatedLastTimestamp"),
    ]
    return max(datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(UTC) for stamp in stamps if stamp)
