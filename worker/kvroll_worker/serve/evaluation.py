"""EvaluationService: the gate's questions, one text at a time beside the users' sessions, and not at their expense."""

import asyncio
from typing import Any
from uuid import uuid4

import grpc
import grpc.aio

from kvroll.v1 import evaluation_pb2 as epb
from kvroll.v1.evaluation_pb2_grpc import EvaluationServiceServicer
from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.evaluate.metrics import NotComparableError
from kvroll_worker.evaluate.pieces import ids_of_pieces
from kvroll_worker.evaluate.scores import Scoring, TokenScore
from kvroll_worker.port import TokenizerPort
from kvroll_worker.request import EngineError, Sampling, SessionState
from kvroll_worker.serve.instance.asides import AsideFailedError, AsideStoppedError
from kvroll_worker.serve.instance.host import WorkerHost
from kvroll_worker.wire.intake import BadRequestError, check_ids

MOST_CONTINUATIONS = 64
MOST_TOP_K = 256
MOST_REPORTED = 1 << 17
"""Likeliest tokens in one answer: about 1.5 MiB."""
MOST_CALLS = 16
"""Under way or waiting; one text of all of them is in the engine at a time."""
MOST_SECONDS = 600.0
_ROOM_SECONDS = 0.1
_SALT = "evaluation"
"""A gate's prompts are no user's prefix."""

_CODES: list[tuple[type[Exception], grpc.StatusCode]] = [
    (BadRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (EngineError, grpc.StatusCode.INVALID_ARGUMENT),
    (AsideStoppedError, grpc.StatusCode.FAILED_PRECONDITION),
    (AsideFailedError, grpc.StatusCode.INTERNAL),
    (NotComparableError, grpc.StatusCode.INTERNAL),
    (TimeoutError, grpc.StatusCode.DEADLINE_EXCEEDED),
]
Context = grpc.aio.ServicerContext[Any, Any]


class EvaluationService(EvaluationServiceServicer):
    """Score. Does not ask for admission: the gate measures a worker before it is admitted."""

    def __init__(self, host: WorkerHost) -> None:
        self._host = host
        self._turn = asyncio.Semaphore(
            1
        )  # wakes in the order of waiting, so a long call lets others in between its texts
        self._calls = 0

    async def Score(self, request: epb.ScoreRequest, context: Context) -> epb.ScoreResponse:
        mine = self._host.ref.instance_id
        if request.instance_id not in ("", mine):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"expected instance {request.instance_id}, this is {mine}"
            )
        if self._calls >= MOST_CALLS:
            text = f"{MOST_CALLS} evaluations are under way or waiting; try again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._calls += 1
        try:
            async with asyncio.timeout(MOST_SECONDS):
                scorings = scorings_of(request, self._host.tokenizer)
                return epb.ScoreResponse(scores=[await self._score(one) for one in scorings])
        except tuple(kind for kind, _ in _CODES) as error:
            code = next(code for kind, code in _CODES if isinstance(error, kind))
            await context.abort(code, str(error) or f"not scored within {MOST_SECONDS:g} s; ask for less at a time")
            raise AssertionError("abort() raises") from error
        finally:
            self._calls -= 1

    async def _score(self, scoring: Scoring) -> epb.Score:
        async with self._turn:
            await self._room(len(scoring.token_ids) + 1)
            sampling = Sampling(temperature=0.0, max_tokens=1, ignore_eos=True)
            session_id = f"evaluation/{uuid4().hex}"
            state = SessionState(session_id, self._host.model, list(scoring.token_ids), sampling=sampling)
            state.cache_salt = _SALT
            await self._host.asides.run(state, PromptProbe(scoring.positions, scoring.take))
        tokens = scoring.scores()
        return epb.Score(
            tokens=[_token(one) for one in tokens],
            logprob_sum=sum(one.logprob for one in tokens),
            is_greedy=scoring.is_greedy,
        )

    async def _room(self, num_tokens: int) -> None:
        """Waits until the text fits beside the users' sessions; it must not cost one of them its pages."""
        if num_tokens > self._host.room_tokens():
            return  # the engine refuses it, with the arithmetic
        while (
            self._host.window.session_pages(num_tokens) + self._host.stats.running > self._host.stats.pages_free
            and self._host.stats.running
        ):
            await asyncio.sleep(_ROOM_SECONDS)


def scorings_of(request: epb.ScoreRequest, tokenizer: TokenizerPort) -> list[Scoring]:
    """What is to be scored, one a continuation.

    Raises:
        BadRequestError: no continuation, one without a token to score, text beside ids, unknown ids, or too much asked for.
    """
    if not 0 < len(request.continuations) <= MOST_CONTINUATIONS:
        raise BadRequestError(f"expected 1 to {MOST_CONTINUATIONS} continuations, found {len(request.continuations)}")
    if request.top_k > MOST_TOP_K:
        raise BadRequestError(f"top_k: expected at most {MOST_TOP_K}, found {request.top_k}")
    scorings = []
    for number, continuation in enumerate(request.continuations):
        ids, begin = _joined(request, continuation, tokenizer)
        check_ids(ids, tokenizer)
        scorings.append(Scoring(ids, max(begin, 1), request.top_k))
        if not scorings[-1].positions:
            raise BadRequestError(f"continuation {number} has no token to score behind a first one; make it longer")
    reported = sum(len(one.positions) for one in scorings) * request.top_k
    if reported > MOST_REPORTED:
        raise BadRequestError(
            f"expected at most {MOST_REPORTED} likeliest tokens in an answer, found {reported}; ask for less"
        )
    return scorings


def _joined(request: epb.ScoreRequest, continuation: epb.ScoredText, tokenizer: TokenizerPort) -> tuple[list[int], int]:
    """The ids of both, and where the continuation begins."""
    kinds = {continuation.WhichOneof("content")}
    if request.HasField("prompt"):
        kinds.add(request.prompt.WhichOneof("content"))
    if kinds == {"text"}:
        ids, begins = ids_of_pieces(tokenizer.encode, [request.prompt.text, continuation.text])
        return ids, begins[1]
    if kinds == {"token_ids"}:
        prompt = list(request.prompt.token_ids.ids)
        return prompt + list(continuation.token_ids.ids), len(prompt)
    raise BadRequestError("expected prompt and continuations all as text or all as token_ids; send one kind")


def _token(score: TokenScore) -> epb.ScoredToken:
    likeliest = [epb.LikelyToken(token_id=token_id, logprob=logprob) for token_id, logprob in score.likeliest]
    return epb.ScoredToken(token_id=score.token_id, logprob=score.logprob, likeliest=likeliest)
