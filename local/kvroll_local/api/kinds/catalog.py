"""Every kind that one server serves, found by group, version and plural."""

from collections.abc import Iterable, Iterator

from kvroll_local.api.kinds.built_in import built_in
from kvroll_local.api.kinds.crd import kinds_of
from kvroll_local.api.kinds.kind import Json, Kind


class Catalog:
    """The built-in kinds and those of the given CRDs."""

    def __init__(self, crds: Iterable[Json]) -> None:
        kinds = [*built_in(), *(kind for crd in crds for kind in kinds_of(crd))]
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        self._by_resource = {kind.resource: kind for kind in reversed(kinds)}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def of_resource(self, resource: str) -> Kind | None:
        """The kind whose objects the store keeps under that resource; the core group's for events."""
        return self._by_resource.get(resource)

    def groups(self) -> dict[str, list[str]]:
        """The versions of every named group, in the order of registration."""
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return {group: versions for group, versions in found.items() if group}
