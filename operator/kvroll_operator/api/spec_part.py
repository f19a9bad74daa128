"""The base of every part of a spec."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Base of every part of a spec: unknown fields are refused, so that a typo never passes silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
