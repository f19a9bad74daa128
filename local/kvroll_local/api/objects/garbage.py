"""Garbage: what has owners of which none is left."""

from kvroll_local.api.store.event import Key
from kvroll_local.api.store.store import Store


def orphans(store: Store) -> list[Key]:
    """The keys of objects all of whose owners are gone, and that are not being deleted yet."""
    objects = list(store.all())
    alive = {body["metadata"]["uid"] for _, body in objects}
    found = []
    for key, body in objects:
        owners = body["metadata"].get("ownerReferences")
        if (
            owners
            and "deletionTimestamp" not in body["metadata"]
            and not any(owner.get("uid") in alive for owner in owners)
        ):
            found.append(key)
    return found
