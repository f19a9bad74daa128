"""From a row of logits to the event that the client sees: token, certain text, logprobs, the reason to stop."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from kvroll_worker.engine.session import EngineSession
from kvroll_worker.engine.step.penalties import adjusted
from kvroll_worker.engine.step.sampler import Row, sample, top_logprobs
from kvroll_worker.engine.text.scorer import PromptScorer
from kvroll_worker.models.tokenizer import Tokenizer
from kvroll_worker.request import FailureCode, Sampling, SessionFault, SessionState, TokenEvent, TokenLogprob


class Emitter:
    """Moves a session on by one token; frees nothing."""

    def __init__(self, tokenizer: Tokenizer, scorer: PromptScorer) -> None:
        self._tokenizer, self._scorer = tokenizer, scorer

    def advance(self, session: EngineSession, row: Row) -> TokenEvent:
        """Samples, appends and says what became certain; with a `finish_reason` the session is to be freed.

        Raises:
            SessionFault: the logits are no numbers, or the session's parameters forbid every token. It is to be freed; so it is where
                anything else is raised.
        """
        state = session.state
        check_numbers(row, session.num_tokens - 1)
        prompt = None if state.output_token_ids else self._scorer.prompt(session)
        choice = adjusted(row, state.sampling, self._forbidden(state), session.counts)
        _check_choice(choice, state)
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
            scheduled_at=session.scheduled_at,
        )

    def _text(self, session: EngineSession, token_id: int) -> tuple[str, str | None]:
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


def check_numbers(values: npt.NDArray[np.float32], position: int) -> None:
    """Looks at what the model computed for the token at that position, or for those from it on.

    Raises:
        SessionFault: there is NaN or infinity in it.
    """
    # Both keep NaN, and an extreme of floats costs a fraction of what isfinite() of each does.
    if np.isfinite(values.max()) and np.isfinite(values.min()):
        return
    first = position + int(np.argmin(np.isfinite(values).all(axis=1))) if values.ndim > 1 else position
    raise SessionFault(
        FailureCode.NON_FINITE,
        f"expected numbers from the model, found NaN or infinity at token {first}; the session was freed and others go on. If it happens"
        " again, the weights are damaged or overflow at this precision: take a checkpoint that is whole, or a wider dtype",
    )


def _check_choice(choice: Row, state: SessionState) -> None:
    best, sampling = choice.max(), state.sampling
    if best == -np.inf:
        raise SessionFault(
            FailureCode.NOTHING_LEFT,
            f"nothing is left to choose for output {len(state.output_token_ids)}: before min_tokens {sampling.min_tokens} the ids that end"
            f" the session are forbidden, and with {len(sampling.stop_token_ids)} stop_token_ids these are the whole vocabulary; lower"
            " min_tokens or name fewer stop_token_ids",
        )
    if not np.isfinite(best):
        raise SessionFault(
            FailureCode.NON_FINITE, "penalties and logit_bias took the logits out of the range of numbers; ask for less"
        )


def complete(state: SessionState) -> bool:
    """True if nothing is left to generate."""
    return len(state.output_token_ids) >= state.sampling.max_tokens


def output_digest(token_ids: Sequence[int]) -> str:
    """XXH3-128 hex over the ids as little-endian uint32."""
    return xxhash.xxh3_128_hexdigest(np.asarray(token_ids, dtype="<u4").tobytes())
