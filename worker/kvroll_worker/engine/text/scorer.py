"""Logprobs of prompt tokens: the row at position i says how likely the token at i + 1 was."""

from collections.abc import Iterator

from kvroll_worker.engine.schedule.scheduler import Chunk
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.engine.step.runner import Runner
from kvroll_worker.engine.step.sampler import Row, top_logprobs
from kvroll_worker.models.tokenizer import Tokenizer
from kvroll_worker.request import FailureCode, Prompt, PromptToken, SessionFault, TokenLogprob


class PromptScorer:
    """Collects a session's prompt logprobs while its prompt is computed; what was lost with its pages is collected anew."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer) -> None:
        self._runner, self._tokenizer = runner, tokenizer

    def score(self, chunk: Chunk, first_row: int) -> None:
        """Scores the prompt rows of a chunk of the step that was just computed; the runner's logits are others afterwards."""
        wanted = list(_prompt_rows(chunk, first_row))
        for at in range(0, len(wanted), self._runner.max_logits):
            part = wanted[at : at + self._runner.max_logits]
            logits = self._runner.logits([row for row, _ in part])
            for (_, position), row in zip(part, logits, strict=True):
                self._take(chunk.session, position, row)

    def prompt(self, session: EngineSession) -> Prompt | None:
        """What goes out with the first output."""
        sampling, ids = session.state.sampling, session.state.prompt_token_ids
        if not sampling.echo and sampling.prompt_logprobs is None:
            return None
        tokens: tuple[PromptToken, ...] = ()
        if sampling.prompt_logprobs is not None:
            tokens = (PromptToken(ids[0], self._tokenizer.token_text(ids[0])), *session.scored)
            if len(tokens) != len(ids):
                raise AssertionError(f"expected logprobs of all {len(ids)} prompt tokens, found {len(tokens)}")
            session.scored.clear()
        return Prompt(self._tokenizer.decode(ids) if sampling.echo else "", tokens)

    def _take(self, session: EngineSession, position: int, row: Row) -> None:
        if session.probe is not None and position in session.probe.positions:
            try:
                session.probe.take(position, row)
            except Exception as error:
                text = f"the probe of {session.session_id} failed: {type(error).__name__}: {error}"
                raise SessionFault(FailureCode.PROBE_FAILED, text) from error
        if session.state.sampling.prompt_logprobs is None:
            return
        del session.scored[position:]
        token_id = session.ids[position + 1]
        best = top_logprobs(row, token_id, session.state.sampling.prompt_logprobs)
        named = tuple(TokenLogprob(i, self._tokenizer.token_text(i), value) for i, value in best)
        session.scored.append(PromptToken(token_id, named[0].token, named))


def _prompt_rows(chunk: Chunk, first_row: int) -> Iterator[tuple[int, int]]:
    """Row of the step and position of every row that predicts a prompt token that is asked about."""
    session, start, length, _ = chunk
    for position in range(start, min(start + length, len(session.state.prompt_token_ids) - 1)):
        if _is_asked(session, position):
            yield first_row + position - start, position


def _is_asked(session: EngineSession, position: int) -> bool:
    probe = session.probe
    return session.state.sampling.prompt_logprobs is not None or (probe is not None and position in probe.positions)
