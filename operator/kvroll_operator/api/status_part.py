"""The base of every part of a status."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Status(BaseModel):
    """Base of every part of a status."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)
