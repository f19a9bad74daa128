"""What a client may ask: every field is either understood or refused by name."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError, field_validator

from kvroll_gateway.openai.errors import ApiError

_INT64 = 2**63
_MAX_STOPS = 16  # OpenAI takes 4, vLLM any number
MAX_CHOICES = 128  # of one request: prompts times n
# Fields of OpenAI's and vLLM's API that are not supported (on this endpoint), with the values that ask for nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "metadata": ({},),
    "prediction": (),
    "audio": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
    "prompt_logprobs": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "bad_words": ([],),
}

Probability = Annotated[float, Field(gt=0, le=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**32)]  # in JSON the keys of `logit_bias` are strings


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StreamOptions(_Strict):
    include_usage: StrictBool = False
    continuous_usage_stats: StrictBool = False
    include_obfuscation: Literal[False] = False


class TextPart(_Strict):
    type: Literal["text"]
    text: StrictStr


class Message(_Strict):
    """One turn of a chat; `name` and tool calls are refused because no chat template here reads them."""

    role: Literal["system", "developer", "user", "assistant"]
    content: StrictStr | list[TextPart]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content)

    @property
    def template_role(self) -> str:
        """OpenAI renamed system to developer; chat templates know the older word."""
        return "system" if self.role == "developer" else self.role


class GenerationRequest(_Strict, ABC):
    """The fields that both endpoints share."""

    model: StrictStr
    n: StrictInt = Field(default=1, ge=1, le=MAX_CHOICES)
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: Probability = 1.0
    top_k: StrictInt = Field(default=0, ge=-1, lt=2**31)
    min_p: float = Field(default=0.0, ge=0, le=1)
    seed: StrictInt | None = Field(default=None, ge=-_INT64, lt=_INT64)
    stop: StrictStr | list[StrictStr] | None = None
    stop_token_ids: list[TokenId] = []
    include_stop_str_in_output: StrictBool = False
    ignore_eos: StrictBool = False
    min_tokens: StrictInt = Field(default=0, ge=0, lt=2**31)
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=100)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    logit_bias: dict[TokenId, Annotated[float, Field(ge=-100, le=100)]] = {}
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    user: StrictStr | None = None
    cache_salt: StrictStr | None = Field(default=None, min_length=1, max_length=256)
    priority: StrictInt = Field(default=0, ge=-(2**31), lt=2**31)
    return_token_ids: StrictBool = False
    reproducible: StrictBool = False

    @field_validator("stop")
    @classmethod
    def _bounded_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        strings = [stop] if isinstance(stop, str) else stop or []
        if len(strings) > _MAX_STOPS or any(not one for one in strings):
            raise ValueError(f"expected at most {_MAX_STOPS} stop strings, none of them empty")
        return stop

    @property
    def stop_strings(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    @abstractmethod
    def asked_max_tokens(self) -> int | None:
        """The limit in the endpoint's own field; None: all the context that is left."""

    @property
    @abstractmethod
    def asked_logprobs(self) -> int | None:
        """How many likeliest tokens each token comes with; None: no logprobs."""


class CompletionRequest(GenerationRequest):
    prompt: StrictStr | list[StrictStr] | list[StrictInt] | list[list[StrictInt]]
    max_tokens: StrictInt = Field(default=16, ge=0, lt=2**31)
    logprobs: StrictInt | None = Field(default=None, ge=0, le=20)
    echo: StrictBool = False
    prompt_logprobs: StrictInt | None = Field(default=None, ge=0, le=20)

    @property
    def prompts(self) -> list[str | list[int]]:
        """Every prompt, as text or token ids.

        Raises:
            ApiError: there is none, or one of them is empty.
        """
        several = isinstance(self.prompt, list) and not (self.prompt and isinstance(self.prompt[0], int))
        prompts: list[Any] = self.prompt if several else [self.prompt]  # type: ignore[assignment]
        for prompt in prompts or [""]:
            if not prompt or (isinstance(prompt, list) and not all(0 <= one < 2**32 for one in prompt)):
                raise ApiError(400, "expected text or token ids, found none", code="invalid_value", param="prompt")
        if len(prompts) * self.n > MAX_CHOICES:
            found = f"{len(prompts)} prompts times n = {self.n}"
            raise ApiError(
                400, f"expected at most {MAX_CHOICES} choices, found {found}", code="invalid_value", param="n"
            )
        return prompts

    @property
    def prompt_only(self) -> bool:
        """True if nothing is to be generated; the worker still makes one token, which is left out."""
        return self.max_tokens == 0

    @property
    def asked_prompt_logprobs(self) -> int | None:
        """How many likeliest tokens each prompt token comes with, for `echo` or in vLLM's shape; None: no logprobs of the prompt."""
        asked = [one for one in (self.prompt_logprobs, self.logprobs if self.echo else None) if one is not None]
        return max(asked, default=None)

    @property
    def asked_max_tokens(self) -> int | None:
        return max(self.max_tokens, 1)

    @property
    def asked_logprobs(self) -> int | None:
        return self.logprobs


class ChatRequest(GenerationRequest):
    messages: list[Message] = Field(min_length=1)
    max_tokens: StrictInt | None = Field(default=None, ge=1, lt=2**31)
    max_completion_tokens: StrictInt | None = Field(default=None, ge=1, lt=2**31)
    logprobs: StrictBool | None = None
    top_logprobs: StrictInt | None = Field(default=None, ge=0, le=20)

    @property
    def asked_max_tokens(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def asked_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


Request = TypeVar("Request", bound=GenerationRequest)


def parse(kind: type[Request], body: Any) -> Request:
    """Reads a request body.

    Raises:
        ApiError: 400 that names the field at fault in `param`.
    """
    if not isinstance(body, dict):
        raise ApiError(400, f"expected a JSON object, found {type(body).__name__}", code="invalid_value")
    fields = {name: value for name, value in body.items() if value is not None}
    for name in [name for name in fields if name in NEUTRAL and name not in kind.model_fields]:
        value = fields.pop(name)
        if value not in NEUTRAL[name]:
            raise ApiError(
                400, f"`{name}` is not supported here; leave it out", code="unsupported_parameter", param=name
            )
    try:
        request = kind.model_validate(fields)
    except ValidationError as error:
        raise _named(error) from None
    if isinstance(request, ChatRequest) and request.top_logprobs and not request.logprobs:
        raise ApiError(400, "`top_logprobs` needs `logprobs: true`", code="invalid_value", param="top_logprobs")
    if isinstance(request, CompletionRequest) and request.prompt_only and not request.echo:
        raise ApiError(400, "`max_tokens: 0` needs `echo: true`", code="invalid_value", param="max_tokens")
    if isinstance(request, CompletionRequest) and request.prompt_logprobs is not None and request.stream:
        raise ApiError(400, "`prompt_logprobs` needs `stream: false`", code="invalid_value", param="prompt_logprobs")
    if request.stream_options is not None and not request.stream:
        raise ApiError(400, "`stream_options` needs `stream: true`", code="invalid_value", param="stream_options")
    return request


_CODES = {"extra_forbidden": "unknown_parameter", "missing": "missing_required_parameter"}


def _named(error: ValidationError) -> ApiError:
    """The first complaint, with the path of its field as OpenAI writes it: `messages[0].content`."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = ""
    for part in first["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int"):  # the branch of a union stands in the path too
            path += f".{part}" if path else part
    if first["type"] == "extra_forbidden":
        message = f"`{path}` is not a parameter that is known here; leave it out"
    else:
        message = f"`{path}`: {first['msg']}"
    return ApiError(400, message, code=_CODES.get(first["type"], "invalid_value"), param=path)
