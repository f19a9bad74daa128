"""What a worker remembers of a session beside what its engine knows."""

from dataclasses import dataclass, replace

from kvroll_worker.request import PrecisionEpoch, SessionState


@dataclass
class SessionRecord:
    """Times are monotonic seconds: when it came, its first step, its first and its last token here; `submitted_at` is None where it did not
    begin here, and then the first two say nothing.
    """

    admitted: SessionState  # as it came, prompt and sampling resolved
    precision_epochs: list[PrecisionEpoch]
    same_revision_moves: int = 0
    submitted_at: float | None = None
    last_token_at: float | None = None
    num_outputs: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.admitted.prompt_token_ids)

    @property
    def max_remaining_tokens(self) -> int:
        """The most that the session may still generate."""
        return max(0, self.admitted.sampling.max_tokens - self.num_outputs)

    def complete(self, snapshot: SessionState) -> SessionState:
        """The engine's snapshot with what only this record knows."""
        return replace(
            snapshot,
            precision_epochs=list(self.precision_epochs),
            same_revision_moves=self.same_revision_moves,
            created_unix_seconds=self.admitted.created_unix_seconds,
        )


def record_of(
    state: SessionState, mode: str, weights: str, kv_cache: str, submitted_at: float | None = None
) -> SessionRecord:
    """The record of a session that goes on here from `state`, its next precision epoch begun in `mode`."""
    begun = PrecisionEpoch(len(state.output_token_ids), weights, kv_cache, mode)
    epochs = [e for e in state.precision_epochs if e.from_token < begun.from_token] + [begun]
    return SessionRecord(state, epochs, state.same_revision_moves, submitted_at, None, len(state.output_token_ids))
