"""One resource that is served."""

from dataclasses import dataclass, field
from typing import Any

from kvroll_local.api.schema.schema import Schema

Json = dict[str, Any]
AGE: Json = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "CreationTimestamp",
}
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Kind:
    """A resource of one group and version."""

    group: str
    version: str
    plural: str
    kind: str
    schema: Schema
    component: str = ""
    """The name of its schema among Kubernetes' OpenAPI components; empty for what a CRD defines."""
    namespaced: bool = True
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False
    """Whether a change of what is asked for is counted in metadata.generation."""
    scale: Json | None = None
    """The three paths of a CRD's scale subresource."""
    fields: tuple[str, ...] = ()
    """What a field selector may name, besides name and namespace."""
    columns: tuple[Json, ...] = field(default=(AGE,))

    @property
    def custom(self) -> bool:
        return not self.component

    @property
    def resource(self) -> str:
        """Where the store keeps it. Both event groups are one resource, as in Kubernetes."""
        return f"{'' if self.group == 'events.k8s.io' else self.group}/{self.plural}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`kvpools.kvroll.dev`, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind
