"""The turns of a chat, as OpenAI's schema has them: text, and what chat templates read beside it."""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, StrictStr, model_validator

_MAX_PARTS = 4096
_ROLES_OF = {"tool_calls": "assistant", "refusal": "assistant", "tool_call_id": "tool"}


class Strict(BaseModel):
    """Refuses what it does not know."""

    model_config = ConfigDict(extra="forbid")


class TextPart(Strict):
    type: Literal["text"]
    text: StrictStr


class CalledFunction(Strict):
    name: StrictStr
    arguments: StrictStr


class ToolCall(Strict):
    id: StrictStr
    type: Literal["function"]
    function: CalledFunction


def _few_parts(content: Any) -> Any:
    if isinstance(content, list) and not 0 < len(content) <= _MAX_PARTS:
        raise ValueError(f"expected 1 to {_MAX_PARTS} parts, found {len(content)}")
    return content


class Message(Strict):
    """One turn. An assistant's may have no content: it called tools, or had nothing to say."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[StrictStr | list[TextPart] | None, BeforeValidator(_few_parts)] = None
    name: StrictStr | None = None
    tool_calls: list[ToolCall] | None = Field(default=None, max_length=128)
    tool_call_id: StrictStr | None = None
    refusal: StrictStr | None = None
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"expected content in a message of role {self.role!r}, found none")
        for field, role in _ROLES_OF.items():
            if getattr(self, field) is not None and self.role != role:
                raise ValueError(f"expected {field} only in a message of role {role!r}, found it with {self.role!r}")
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("expected tool_call_id in a message of role 'tool', found none")
        return self

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""

    @property
    def template_role(self) -> str:
        """OpenAI renamed system to developer; chat templates know the older word."""
        return "system" if self.role == "developer" else self.role

    @property
    def more_json(self) -> str:
        """What a chat template may read beside role and content, as a JSON object; empty if there is nothing."""
        more: dict[str, Any] = self.model_dump(
            include={"name", "tool_calls", "tool_call_id", "refusal"}, exclude_none=True
        )
        return json.dumps(more) if more else ""


Messages = Annotated[list[Message], Field(min_length=1, max_length=65_536), FailFast()]
