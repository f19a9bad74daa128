"""From a row of logits to the event that the client sees: token, certain text, logprobs, the reason to stop."""

from collections.abc import Sequence

import numpy as np
import xxhash

from kvroll_worker.engine.penalties import adjusted
from kvroll_worker.engine.request import Sampling, SessionFailure, SessionState, TokenEvent, TokenLogprob
from kvroll_worker.engine.sampler import Row, sample, top_logprobs
from kvroll_worker.engine.scorer import PromptScorer
from kvroll_worker.engine.session import Session
from kvroll_worker.models.tokenizer import Tokenizer


class Emitter:
    """Moves a session on by one token; frees nothing."""

    def __init__(self, tokenizer: Tokenizer, scorer: PromptScorer) -> None:
        self._tokenizer, self._scorer = tokenizer, scorer

    def advance(self, session: Session, row: Row) -> TokenEvent | SessionFailure:
        """Samples, appends and says what became certain; `finish_reason` or a failure means the session is to be freed."""
        state = session.state
        if not np.isfinite(row.max()):
            message = "the model produced logits that are no numbers; the session was freed"
            return SessionFailure(state.session_id, "NonFiniteLogits", message)
        prompt = None if state.output_token_ids else self._scorer.prompt(session)
        choice = adjusted(row, state.sampling, self._forbidden(state), session.counts)
        token_id = sample(choice, state.sampling, session.num_tokens)
        session.append(token_id)
        text, reason = self._text(session, token_id)
        state.emitted_chars = session.text.emitted_chars
        return TokenEvent(
            session_id=state.session_id,
            index=len(state.output_token_ids) - 1,
            token_id=token_id,
            text=text,
            finish_reason=reason,
            logprobs=self._logprobs(row, token_id, state.sampling.logprobs),
            prompt=prompt,
            cached_tokens=0 if len(state.output_token_ids) > 1 else session.num_cached,
            output_digest=output_digest(state.output_token_ids) if reason else None,
        )

    def _text(self, session: Session, token_id: int) -> tuple[str, str | None]:
        sampling = session.state.sampling
        if token_id in self._stop_ids(sampling):
            text, stopped = session.text.push(token_id) if sampling.include_stop_str_in_output else ("", False)
            return (text if stopped else text + session.text.finish()), "stop"
        text, stopped = session.text.push(token_id)
        if stopped:
            return text, "stop"
        if complete(session.state):
            return text + session.text.finish(), "length"
        return text, None

    def _stop_ids(self, sampling: Sampling) -> frozenset[int]:
        """Ids that end the session."""
        ends = frozenset() if sampling.ignore_eos else self._tokenizer.eos_token_ids
        return ends.union(sampling.stop_token_ids)

    def _forbidden(self, state: SessionState) -> frozenset[int]:
        """Ids that must not be chosen now: those that would end the session before its `min_tokens`."""
        if len(state.output_token_ids) >= state.sampling.min_tokens:
            return frozenset()
        return self._stop_ids(state.sampling)

    def _logprobs(self, row: Row, token_id: int, wanted: int | None) -> tuple[TokenLogprob, ...]:
        if wanted is None:
            return ()
        best = top_logprobs(row, token_id, wanted)
        return tuple(TokenLogprob(i, self._tokenizer.token_text(i), value) for i, value in best)


def complete(state: SessionState) -> bool:
    """True if nothing is left to generate."""
    return len(state.output_token_ids) >= state.sampling.max_tokens


def output_digest(token_ids: Sequence[int]) -> str:
    """XXH3-128 hex over the ids as little-endian uint32."""
    return xxhash.xxh3_128_hexdigest(np.asarray(token_ids, dtype="<u4").tobytes())
