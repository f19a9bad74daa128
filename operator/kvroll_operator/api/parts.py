"""What every part of a spec and of a status is made from."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Spec(BaseModel):
    """Base of every part of a spec: unknown fields are refused, so that a typo never passes silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Status(BaseModel):
    """Base of every part of a status."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


def instant(unix_seconds: float | None) -> str | None:
    """A time as Kubernetes writes it: RFC 3339 in whole seconds."""
    if unix_seconds is None:
        return None
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
