"""What a session is to the engine, as plain data: the same fields go over the wire, into a checkpoint and back."""

from dataclasses import dataclass, field
from enum import StrEnum


class EngineError(Exception):
    """Base of what the engine refuses; the message says what was expected, what was found and what to do."""


class DoesNotFitError(EngineError):
    """The request can never run here, with the arithmetic: its client is at fault."""


class InvalidRequestError(DoesNotFitError):
    """A value is out of its bound: the message names field, bound and what was found."""


class NoRoomError(EngineError):
    """There are too few free pages or session slots now; another worker, or later, may do."""


class UnknownSessionError(EngineError, KeyError):
    """The engine does not hold that session."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters with every default resolved; `seed` is always set, so that the noise is f(seed, position, token id)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int = 16
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    reproducible: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, bias), ascending by id
    min_tokens: int = 0
    include_stop_str_in_output: bool = False
    echo: bool = False
    prompt_logprobs: int | None = None

    @property
    def counts_tokens(self) -> bool:
        """True if a logit depends on which ids came before."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


@dataclass(frozen=True)
class PrecisionEpoch:
    """From output token `from_token` on, this precision produced the tokens; `mode` is Start, Exact, Convert or Replay."""

    from_token: int
    weights: str
    kv_cache: str
    mode: str


@dataclass
class SessionState:
    """All of a session but its KV pages. While decoding, KV covers exactly `(prompt + output)[:-1]`."""

    session_id: str
    model: str
    prompt_token_ids: list[int]
    output_token_ids: list[int] = field(default_factory=list)
    sampling: Sampling = field(default_factory=Sampling)
    emitted_chars: int = 0
    precision_epochs: list[PrecisionEpoch] = field(default_factory=list)
    created_unix_seconds: float = 0.0
    same_revision_moves: int = 0
    cache_salt: str = ""  # sessions share cached pages only with those of the same salt
    priority: int = 0  # the lower number is served first (vLLM's meaning)
    kv_converted: bool = False  # some of its KV is not what computing its ids here gives: nobody else may read it

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)


class EnginePhase(StrEnum):
    """Where a session stands in the engine."""

    WAITING = "waiting"  # holds no pages
    PREFILL = "prefill"
    DECODE = "decode"
    FROZEN = "frozen"  # keeps its pages, is not stepped
    HELD = "held"  # prefilled or restored, does not sample until released


@dataclass(frozen=True)
class TokenLogprob:
    token_id: int
    token: str
    logprob: float


@dataclass(frozen=True)
class PromptToken:
    """A token of the prompt: itself first, then the likeliest in its place; nothing for the first token, which nothing predicts."""

    token_id: int
    token: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """`text` is there with `Sampling.echo`, `tokens` with `Sampling.prompt_logprobs`."""

    text: str = ""
    tokens: tuple[PromptToken, ...] = ()


@dataclass(frozen=True)
class TokenEvent:
    """One generated token; `text` is what became certain with it, `finish_reason` is set on the last one ("stop" or "length").

    `prompt` is on the first one, if the sampling asks for it, and `cached_tokens`: how many of the prompt's the prefix cache had.
    `scheduled_at`: monotonic seconds of the session's first step here.
    With `Sampling.logprobs` = n, `logprobs` holds the chosen token first, then the n most likely ones (raw logits, no temperature).
    """

    session_id: str
    index: int
    token_id: int
    text: str
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    output_digest: str | None = None  # with finish_reason: XXH3-128 hex over the little-endian uint32 output ids
    prompt: Prompt | None = None
    cached_tokens: int = 0
    scheduled_at: float | None = field(
        default=None, compare=False
    )  # when, not what: the same tokens are the same events


class FailureCode(StrEnum):
    """Why a session alone was given up; clients see these words."""

    NON_FINITE = "NonFiniteLogits"  # the model computed NaN or infinity for one of its tokens
    NOTHING_LEFT = "NothingLeftToChoose"  # its own parameters forbid every token
    PROBE_FAILED = "ProbeFailed"  # the evaluation that looked at its logits raised
    SESSION_ERROR = "SessionError"  # anything else that was done for it alone and failed; the log has the traceback


class SessionFault(EngineError):
    """What went wrong for one session alone and ends it; the others of the step go on as if it had not been there."""

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class SessionFailure:
    """A session that the engine had to give up; its pages are free. `code` is a `FailureCode`, or a host's word."""

    session_id: str
    code: str
    message: str


STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Upper edges of the histogram of tokens a step, as vLLM has them."""


@dataclass(frozen=True)
class EngineStats:
    """Gauges and counters; pages and bytes are of the KV pool. In a sealed format pages are sealed and open ones together, `page_bytes`
    is a sealed one's and `open_page_bytes` an open one's; 0 where the format has none.

    `pages_free` are those that can be given now, of which `pages_cached` still hold a prefix. A prompt counts in `prompt_tokens_total`
    with its first output; `prefill_tokens_total` counts what was computed of prompts and replayed outputs, `prefix_hits_total` what
    was not, because it was cached. What a preempted session finds again is in `prefix_resumed_total` alone. `waiting_for_room`: the next
    session in line waits for pages, not for a slot or a prefix. `read_bytes_total`, `flops_total`: what the steps read and computed
    (`kvroll_core.work`). `kernel_seconds_total`: time inside kernels, 0 where they do not count it.
    `step_sizes`: steps by their tokens, one count for each edge of `STEP_TOKENS` and one for more.
    """

    running: int
    waiting: int
    held: int
    frozen: int
    pages_total: int
    pages_free: int
    page_bytes: int
    kv_bytes_per_token: float
    prompt_tokens_total: int
    generated_tokens_total: int
    preemptions_total: int
    steps_total: int
    pages_cached: int = 0
    evictions_total: int = 0
    allocation_failures_total: int = 0
    prefill_tokens_total: int = 0
    prefix_queries_total: int = 0
    prefix_hits_total: int = 0
    prefix_resumed_total: int = 0
    prefix_cache_on: bool = False
    prefix_switches_total: int = 0
    window_pages_freed_total: int = 0
    spills_total: int = 0
    spilled_bytes: int = 0
    waiting_for_room: bool = False
    read_bytes_total: float = 0.0
    flops_total: float = 0.0
    kernel_seconds_total: float = 0.0
    open_page_bytes: int = 0
    step_sizes: tuple[int, ...] = ()
    step_tokens_total: int = 0
