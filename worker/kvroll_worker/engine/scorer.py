"""Logprobs of prompt tokens: the row at position i says how likely the token at i + 1 was."""

from collections.abc import Iterator

from kvroll_worker.engine.probe import ProbeFailedError
from kvroll_worker.engine.request import Prompt, PromptToken, TokenLogprob
from kvroll_worker.engine.runner import Runner
from kvroll_worker.engine.sampler import Row, top_logprobs
from kvroll_worker.engine.scheduler import Chunk
from kvroll_worker.engine.session import Session
from kvroll_worker.models.tokenizer import Tokenizer


class PromptScorer:
    """Collects a session's prompt logprobs while its prompt is computed; what was lost with its pages is collected anew."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer) -> None:
        self._runner, self._tokenizer = runner, tokenizer

    def score(self, chunks: list[Chunk]) -> None:
        """Scores the prompt rows of the step that was just computed; the runner's logits are others afterwards."""
        wanted = list(_prompt_rows(chunks))
        for at in range(0, len(wanted), self._runner.max_logits):
            part = wanted[at : at + self._runner.max_logits]
            logits = self._runner.logits([row for row, _, _ in part])
            for (_, session, position), row in zip(part, logits, strict=True):
                self._take(session, position, row)

    def prompt(self, session: Session) -> Prompt | None:
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

    def _take(self, session: Session, position: int, row: Row) -> None:
        if session.probe is not None and position in session.probe.positions:
            try:
                session.probe.take(position, row)
            except Exception as error:
                raise ProbeFailedError(session.session_id, error) from error
        if session.state.sampling.prompt_logprobs is None:
            return
        del session.scored[position:]
        token_id = session.ids[position + 1]
        best = top_logprobs(row, token_id, session.state.sampling.prompt_logprobs)
        named = tuple(TokenLogprob(i, self._tokenizer.token_text(i), value) for i, value in best)
        session.scored.append(PromptToken(token_id, named[0].token, named))


def _prompt_rows(chunks: list[Chunk]) -> Iterator[tuple[int, Session, int]]:
    """Row of the step, session and position of every row that predicts a prompt token that is asked about."""
    first = 0
    for session, start, length, _ in chunks:
        if session.scores_prompt:
            end = min(start + length, len(session.state.prompt_token_ids) - 1)
            for position in range(start, end):
                if _is_asked(session, position):
                    yield first + position - start, session, position
        first += length


def _is_asked(session: Session, position: int) -> bool:
    probe = session.probe
    return session.state.sampling.prompt_logprobs is not None or (probe is not None and position in probe.positions)
