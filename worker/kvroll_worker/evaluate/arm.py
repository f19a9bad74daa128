"""A gate's arm that is an engine in this process: what `EvaluationService.Score` would answer, without a port."""

from collections.abc import Sequence
from itertools import count

from kvroll_core.gate import Answer, Ask, Score, ScoredToken
from kvroll_worker.engine.engine import Engine
from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.evaluate.metrics import NotComparableError
from kvroll_worker.evaluate.pieces import ids_of_pieces
from kvroll_worker.evaluate.scores import Scoring
from kvroll_worker.request import EngineError, Sampling, SessionFailure, SessionState

_NUMBERS = count()


class EngineArm:
    """Answers asks with an engine that has nothing else to do, `together` texts in its batch at a time."""

    def __init__(self, engine: Engine, together: int = 1) -> None:
        self._engine, self._together = engine, together

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """One answer an ask.

        Raises:
            DoesNotFitError: a text is longer than the engine's sessions may be.
            EngineError: the engine has work of its own.
            NotComparableError: the model gave numbers that are no numbers.
        """
        scorings = [[_scoring(self._engine, ask, continuation) for continuation in ask.continuations] for ask in asks]
        flat = [scoring for one in scorings for scoring in one]
        for at in range(0, len(flat), self._together):
            self._run(flat[at : at + self._together])
        return [Answer(tuple(_score(scoring) for scoring in one)) for one in scorings]

    def _run(self, scorings: Sequence[Scoring]) -> None:
        engine = self._engine
        if engine.sessions():
            raise EngineError(f"expected an engine without sessions, found {len(engine.sessions())}; use another one")
        names = [f"arm-{next(_NUMBERS)}" for _ in scorings]
        try:
            for name, scoring in zip(names, scorings, strict=True):
                sampling = Sampling(temperature=0.0, max_tokens=1, ignore_eos=True)
                state = SessionState(name, "", list(scoring.token_ids), sampling=sampling)
                engine.submit(state, probe=PromptProbe(scoring.positions, scoring.take))
            while engine.has_work():
                for event in engine.step():
                    if isinstance(event, SessionFailure):
                        raise NotComparableError(f"{event.code}: {event.message}")
        finally:
            for name in names:
                engine.cancel(name)


def _scoring(engine: Engine, ask: Ask, continuation: str) -> Scoring:
    ids, begins = ids_of_pieces(engine.tokenizer.encode, [ask.prompt or "", continuation])
    return Scoring(ids, max(begins[1], 1), ask.top_k)


def _score(scoring: Scoring) -> Score:
    tokens = tuple(ScoredToken(one.token_id, one.logprob, one.likeliest) for one in scoring.scores())
    return Score(tokens, scoring.is_greedy)
