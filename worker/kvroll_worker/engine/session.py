"""A session while it is inside the engine: its state, its pages and where it stands."""

from dataclasses import dataclass, field

from kvroll_core.budget import PageWindow
from kvroll_core.precision.sealing import UNSEALED, Sealing
from kvroll_worker.engine.step.penalties import TokenCounts
from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.engine.text.detokenizer import TextStream
from kvroll_worker.kv.pool import NULL_PAGE
from kvroll_worker.request import EnginePhase, PromptToken, SessionState


@dataclass(eq=False)
class EngineSession:
    """Owned by the scheduler; `num_kv` tokens of `ids` are in `pages`, a running session owns a row (`slot`) of the page table.

    In a sealed format `pages` are the sealed pages, from the first on, and `open_pages` a ring for those behind them.
    """

    state: SessionState
    text: TextStream
    arrival: int
    window: PageWindow = field(default=PageWindow())  # which of its pages are needed
    hold: bool = False  # computes KV up to the last id but does not sample
    parked: bool = False  # restored: does not even compute until released
    frozen: bool = False
    probe: PromptProbe | None = None  # of an evaluation; stays on this engine
    slot: int | None = None  # None: waiting, without pages
    pages: list[int] = field(default_factory=list)  # the null page where every layer's window has passed
    num_passed: int = 0  # pages at the front that are the null page
    sealing: Sealing = UNSEALED
    open_pages: list[int] = field(default_factory=list)
    num_sealed: int = 0  # leading pages whose sealed bytes are there
    num_open_tabled: int = 0  # open pages when the open table's row was last written
    num_kv: int = 0
    num_tabled: int = 0  # pages already written into the page table's row
    num_published: int = 0  # full pages that others may take
    num_cached: int = 0  # leading ids whose KV the prefix cache had when it first got pages
    num_admitted: int = 0  # ids that it came with when it last got its pages: computing these is prefill
    awaits: "tuple[EngineSession, int] | None" = (
        None  # who is computing a prefix of this one, and how many tokens they share
    )
    spilled: "Spilled | None" = None  # KV kept aside while it waits
    preempted: bool = False
    scheduled_at: float | None = None  # monotonic seconds of its first step
    ids: list[int] = field(init=False)
    scored: list[PromptToken] = field(default_factory=list)  # of the prompt's tokens behind the first, in order
    counts: TokenCounts | None = field(init=False, default=None)  # only where a penalty needs them

    def __post_init__(self) -> None:
        self.ids = self.state.prompt_token_ids + self.state.output_token_ids
        if self.state.sampling.counts_tokens:
            self.counts = TokenCounts(self.state.prompt_token_ids, self.state.output_token_ids)

    @property
    def order(self) -> tuple[int, int]:
        """Who is served first, and preempted last: the lower priority number, then the earlier arrival."""
        return self.state.priority, self.arrival

    @property
    def session_id(self) -> str:
        return self.state.session_id

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def target_kv(self) -> int:
        """Tokens that KV should cover after the next work: all ids, the last of which samples; a held session leaves the last."""
        return self.num_tokens - 1 if self.hold else self.num_tokens

    @property
    def num_missing(self) -> int:
        """Tokens still to be computed, 0 for what must not be stepped."""
        return 0 if self.frozen or self.parked else self.target_kv - self.num_kv

    @property
    def scores_prompt(self) -> bool:
        """True while logprobs of the prompt are to be computed: they go out with the first output, and KV cannot give them again."""
        asked = self.state.sampling.prompt_logprobs is not None or self.probe is not None
        return asked and not self.state.output_token_ids

    @property
    def is_protected(self) -> bool:
        """Never preempted: someone is moving it."""
        return self.frozen or self.hold or self.parked

    @property
    def num_missing_pages(self) -> int:
        """Pages that it still needs: to hold all of its ids beside open ones, or with windows what it may compute next."""
        return max(self.end_page(self.num_kv) - len(self.pages), 0)

    def end_page(self, num_kv: int) -> int:
        """Index behind the last page, open ones aside, that it needs with KV of so many tokens."""
        return (
            self.sealing.settled(self.num_tokens)
            if self.sealing.seals
            else self.window.end_page(num_kv, self.num_tokens)
        )

    @property
    def held_pages(self) -> list[int]:
        """Its pages but the null pages at the front."""
        return self.pages[self.num_passed :]

    @property
    def num_missing_open(self) -> int:
        """Open pages that it still needs."""
        return max(self.sealing.opened(self.num_tokens) - len(self.open_pages), 0)

    def open_page(self, index: int) -> int:
        """The open page that holds, or held until it was sealed, the session's page of that index."""
        return self.open_pages[index % self.sealing.open_pages]

    @property
    def phase(self) -> EnginePhase:
        if self.frozen:
            return EnginePhase.FROZEN
        if self.slot is None:
            return EnginePhase.WAITING
        if self.parked or (self.hold and self.num_kv >= self.target_kv):
            return EnginePhase.HELD
        return EnginePhase.DECODE if self.num_missing == 1 and not self.hold else EnginePhase.PREFILL

    def append(self, token_id: int) -> None:
        self.ids.append(token_id)
        self.state.output_token_ids.append(token_id)
        if self.counts is not None:
            self.counts.add(token_id)


@dataclass(frozen=True)
class Spilled:
    """The pages of a preempted session as they lay in the pool, from `first_page` on; with what lies before every layer's window they
    cover its first `num_kv` tokens. Those behind `pages` lay open.
    """

    num_kv: int
    pages: tuple[bytes, ...]
    first_page: int = 0
    open_pages: tuple[bytes, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(map(len, self.pages)) + sum(map(len, self.open_pages))


@dataclass(eq=False)
class PageReservation:
    """Pages and a slot kept for a session that another worker is sending; the null page where it sends none. Of a sealed format, what
    landed in them.
    """

    slot: int
    pages: list[int] = field(default_factory=list)
    open_pages: list[int] = field(default_factory=list)
    landed: set[int] = field(default_factory=set)  # indexes of pages that came sealed
    landed_open: dict[int, int] = field(default_factory=dict)  # index by place of the ring

    @property
    def held_pages(self) -> list[int]:
        """Its pages but the null pages at the front."""
        return [page_id for page_id in self.pages if page_id != NULL_PAGE]
