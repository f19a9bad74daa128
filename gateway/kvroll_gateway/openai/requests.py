"""What a client may ask: every field is either understood or refused by name."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StrictBool, StrictStr, ValidationError

from kvroll_core.sampling_bounds import MAX_CHOICES
from kvroll_gateway.openai.errors import OpenAiError
from kvroll_gateway.openai.messages import Messages, Strict
from kvroll_gateway.openai.values import Biases, Integer, Prompts, Stops, StopTokenIds, number_of, whole_of

_INT64 = 2**63
_MAX_COMPLAINTS = 100
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


class StreamOptions(Strict):
    include_usage: StrictBool = False
    continuous_usage_stats: StrictBool = False
    include_obfuscation: Literal[False] = False


class GenerationRequest(Strict, ABC):
    """The fields that both endpoints share."""

    model: StrictStr
    n: Annotated[int, whole_of("n")] = 1
    temperature: Annotated[float, number_of("temperature")] = 1.0
    top_p: Annotated[float, number_of("top_p")] = 1.0
    top_k: Integer = Field(default=0, ge=-1, lt=2**31)
    min_p: Annotated[float, number_of("min_p")] = 0.0
    seed: Integer | None = Field(default=None, ge=-_INT64, lt=_INT64)
    stop: Stops = Field(default_factory=list)
    stop_token_ids: StopTokenIds = Field(default_factory=list)
    include_stop_str_in_output: StrictBool = False
    ignore_eos: StrictBool = False
    min_tokens: Annotated[int, whole_of("min_tokens")] = 0
    repetition_penalty: Annotated[float, number_of("repetition_penalty")] = 1.0
    presence_penalty: Annotated[float, number_of("presence_penalty")] = 0.0
    frequency_penalty: Annotated[float, number_of("frequency_penalty")] = 0.0
    logit_bias: Biases = Field(default_factory=dict)
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    user: StrictStr | None = None
    safety_identifier: StrictStr | None = None  # these two, like `user`, are for whoever operates a service
    prompt_cache_key: StrictStr | None = None
    cache_salt: StrictStr | None = Field(default=None, min_length=1, max_length=256)
    priority: Annotated[int, whole_of("priority")] = 0
    return_token_ids: StrictBool = False
    reproducible: StrictBool = False

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
    prompt: Prompts
    max_tokens: Integer = Field(default=16, ge=0, lt=2**31)
    logprobs: Annotated[int, whole_of("logprobs")] | None = None
    echo: StrictBool = False
    prompt_logprobs: Annotated[int, whole_of("prompt_logprobs")] | None = None

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """Every prompt, as text or token ids."""
        return self.prompt

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
    messages: Messages
    max_tokens: Integer | None = Field(default=None, ge=1, lt=2**31)
    max_completion_tokens: Integer | None = Field(default=None, ge=1, lt=2**31)
    logprobs: StrictBool | None = None
    top_logprobs: Annotated[int, whole_of("logprobs")] | None = None

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
        raise OpenAiError(400, f"expected a JSON object, found {type(body).__name__}", code="invalid_value")
    fields = {}
    for name, value in body.items():
        if name not in kind.model_fields:
            _check_neutral(name, value)
        elif value is not None:
            fields[name] = value
    try:
        request = kind.model_validate(fields)
    except ValidationError as error:
        raise _named(error) from None
    if isinstance(request, ChatRequest) and request.top_logprobs and not request.logprobs:
        raise OpenAiError(400, "`top_logprobs` needs `logprobs: true`", code="invalid_value", param="top_logprobs")
    if isinstance(request, CompletionRequest) and request.prompt_only and not request.echo:
        raise OpenAiError(400, "`max_tokens: 0` needs `echo: true`", code="invalid_value", param="max_tokens")
    if isinstance(request, CompletionRequest) and request.prompt_logprobs is not None and request.stream:
        raise OpenAiError(400, "`prompt_logprobs` needs `stream: false`", code="invalid_value", param="prompt_logprobs")
    if isinstance(request, CompletionRequest) and len(request.prompts) * request.n > MAX_CHOICES:
        found = f"{len(request.prompts)} prompts times n = {request.n}"
        raise OpenAiError(
            400, f"expected at most {MAX_CHOICES} choices, found {found}", code="invalid_value", param="n"
        )
    if request.stream_options is not None and not request.stream:
        raise OpenAiError(400, "`stream_options` needs `stream: true`", code="invalid_value", param="stream_options")
    return request


def _check_neutral(name: str, value: Any) -> None:
    """Refuses a field that this endpoint does not have, unless it is one of another server's that asks for nothing."""
    if name not in NEUTRAL:
        text = f"`{name}` is not a parameter that is known here; leave it out"
        raise OpenAiError(400, text, code="unknown_parameter", param=name[:_MAX_COMPLAINTS])
    if value is not None and not any(_same(value, neutral) for neutral in NEUTRAL[name]):
        raise OpenAiError(
            400, f"`{name}` is not supported here; leave it out", code="unsupported_parameter", param=name
        )


def _same(value: Any, neutral: Any) -> bool:
    """Equal, and true is not 1."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


_CODES = {"extra_forbidden": "unknown_parameter", "missing": "missing_required_parameter"}


def _named(error: ValidationError) -> OpenAiError:
    """The first complaint, with the path of its field as OpenAI writes it: `messages[0].content`."""
    if error.error_count() > _MAX_COMPLAINTS:  # to list them takes memory for each
        return OpenAiError(400, f"expected a valid request, found {error.error_count()} errors", code="invalid_value")
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ""
    for part in first["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int"):  # the branch of a union stands in the path too
            path += f".{part}" if path else part
    if first["type"] == "extra_forbidden":
        message = f"`{path}` is not a parameter that is known here; leave it out"
    else:
        message = f"`{path}`: {first['msg'].removeprefix('Value error, ')}"
    return OpenAiError(400, message, code=_CODES.get(first["type"], "invalid_value"), param=path)
