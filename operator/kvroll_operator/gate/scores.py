"""Asks a worker for scores (`kvroll.v1.EvaluationService.Score`), admitted or not."""

import asyncio
from typing import Any

import grpc
import grpc.aio

from kvroll.v1 import evaluation_pb2 as epb
from kvroll.v1.evaluation_pb2_grpc import EvaluationServiceStub
from kvroll.wire.channels import client_options
from kvroll_core.gate import Answer, Ask, Score, ScoredToken
from kvroll_operator.gate.finding import GateSourceError
from kvroll_operator.rollout.act.effects import GateProbe

CALL_SECONDS = 600.0
_LATER = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_TRIES = 5
FIRST_PAUSE_SECONDS = 0.5  # each is twice the one before


class ScoringWorker:
    """One instance of a worker; its successor's answers are not taken for its own."""

    def __init__(self, probe: GateProbe) -> None:
        self._probe = probe
        self._channel = grpc.aio.insecure_channel(probe.address, options=client_options())
        self._stub: Any = EvaluationServiceStub(self._channel)

    async def answer(self, ask: Ask) -> Answer:
        """Scores of one ask. A worker that is busy, or away for a moment, is asked again a few times.

        Raises:
            GateSourceError: no answer, another instance, or a text that this worker can never score.
        """
        request = epb.ScoreRequest(
            instance_id=self._probe.instance_id,
            prompt=epb.ScoredText(text=ask.prompt) if ask.prompt is not None else None,
            continuations=[epb.ScoredText(text=text) for text in ask.continuations],
            top_k=ask.top_k,
        )
        for tried in range(_TRIES):
            try:
                return answer_of(await self._stub.Score(request, timeout=CALL_SECONDS))
            except grpc.aio.AioRpcError as error:
                if error.code() not in _LATER or tried + 1 == _TRIES:
                    text = f"{self._probe.worker_id} did not score {ask.id}: {error.code().name}: {error.details()}"
                    raise GateSourceError(text) from error
            await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**tried)
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """Ends the channel."""
        await self._channel.close(None)


def answer_of(response: epb.ScoreResponse) -> Answer:
    """The wire's answer."""
    return Answer(tuple(_score(score) for score in response.scores))


def _score(score: epb.Score) -> Score:
    tokens = (
        ScoredToken(t.token_id, t.logprob, tuple((likely.token_id, likely.logprob) for likely in t.likeliest))
        for t in score.tokens
    )
    return Score(tuple(tokens), score.is_greedy)
