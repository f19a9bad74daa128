"""What a report says for the price of a rollout: sessions by length, the model's sizes, the memory asked for, and measured rates."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvroll.v1 import worker_pb2 as wpb
from kvroll_core.budget import BudgetRequest, ModelShape, PageWindow
from kvroll_worker.own.record import SessionRecord


@dataclass
class Measured:
    """Sums over the life of this instance."""

    _computed_tokens: int = 0
    _context_tokens: float = 0.0  # before each computed one, summed over them
    _first_token_seconds: float = 0.0
    _waited_until: float = 0.0
    _moved_bytes: int = 0
    _move_seconds: float = 0.0

    def prefilled(self, prompt_tokens: int, cached_tokens: int, submitted_at: float, now: float) -> None:
        """A session's first token came; of its prompt the first `cached_tokens` were not computed. Time in which several wait for theirs is
        counted once: they share the same steps.
        """
        computed = prompt_tokens - cached_tokens
        self._computed_tokens += computed
        self._context_tokens += computed * (cached_tokens + computed / 2)
        self._first_token_seconds += max(0.0, now - max(submitted_at, self._waited_until))
        self._waited_until = max(self._waited_until, now)

    def moved(self, num_bytes: int, seconds: float) -> None:
        """A move brought a session that needs so many KV bytes to its target; a replay, which has none, is not counted."""
        if num_bytes and seconds > 0:
            self._moved_bytes += num_bytes
            self._move_seconds += seconds

    @property
    def move_bytes_per_second(self) -> float:
        """Mean over all moves, each by itself; 0 before the first."""
        return self._moved_bytes / self._move_seconds if self._move_seconds else 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Computed prompt tokens a second, with the waiting and decoding beside them as they were; 0 before the first."""
        return self._computed_tokens / self._first_token_seconds if self._first_token_seconds else 0.0

    def to_wire(self, step_seconds: float) -> wpb.MeasuredRates:
        """The rates as of now."""
        computed = max(1, self._computed_tokens)
        return wpb.MeasuredRates(
            step_seconds=step_seconds,
            prefill_token_seconds=self._first_token_seconds / computed,
            prefill_context_tokens=self._context_tokens / computed,
            move_bytes_per_second=self.move_bytes_per_second,
        )


def session_classes(records: Iterable[SessionRecord], window: PageWindow) -> list[wpb.SessionClass]:
    """The histogram: sessions whose tokens, and whose most remaining tokens, have the same number of binary digits are one class. Pages
    are those that a session of the length holds while it decodes.
    """
    classes: dict[tuple[int, int, bool, bool], wpb.SessionClass] = {}
    for record in records:
        tokens = record.num_prompt_tokens + record.num_outputs
        remaining = record.max_remaining_tokens
        reproducible, moved = record.admitted.sampling.reproducible, record.same_revision_moves > 0
        key = (tokens.bit_length(), remaining.bit_length(), reproducible, moved)
        found = classes.setdefault(key, wpb.SessionClass(reproducible=reproducible, moved=moved))
        found.sessions += 1
        found.tokens += tokens
        found.max_remaining_tokens += remaining
        found.pages += window.decoding_pages(tokens)
    return [classes[key] for key in sorted(classes)]


def model_size(shape: ModelShape) -> wpb.ModelSize:
    """The sizes that a worker of ours can have; it runs neither experts nor latents."""
    return wpb.ModelSize(
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate=shape.intermediate,
        vocab=shape.vocab,
        tied_head=shape.tied_head,
        max_positions=shape.max_positions,
        windows=shape.windows,
        sinks=shape.sinks,
    )


def memory_asked(asked: BudgetRequest) -> wpb.MemoryAsked:
    """The limits that the start-up budget kept to."""
    return wpb.MemoryAsked(
        kv_bytes=asked.kv_memory_bytes or 0,
        limit_bytes=asked.memory_limit_bytes or 0,
        headroom_fraction=asked.headroom_fraction,
        max_batch_tokens=asked.max_batch_tokens,
    )
