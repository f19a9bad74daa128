"""EvaluationService of a worker without an engine: scores follow from the text, and from how far off the worker is made to be."""

import asyncio
import hashlib
import math
from typing import TYPE_CHECKING, Any

import grpc

from kvroll.v1 import evaluation_pb2 as epb
from kvroll.v1.evaluation_pb2_grpc import EvaluationServiceServicer

if TYPE_CHECKING:
    _Context = grpc.aio.ServicerContext[Any, Any]
else:
    _Context = object
_LIKELIEST = 8


class StubScores(EvaluationServiceServicer):
    """Every word is a token. `wrong` of the words have another likeliest token than the text says, and so are no greedy continuation."""

    def __init__(self, instance_id: str = "", wrong: float = 0.0, seconds: float = 0.0) -> None:
        self.instance_id, self.wrong, self.seconds = instance_id, wrong, seconds
        self.calls = 0
        self.refuse: list[grpc.StatusCode] = []

    async def Score(self, request: epb.ScoreRequest, context: _Context) -> epb.ScoreResponse:
        self.calls += 1
        if request.instance_id not in ("", self.instance_id):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this is {self.instance_id}")
        if self.refuse:
            await context.abort(self.refuse.pop(0), "busy")
        await asyncio.sleep(self.seconds)
        return epb.ScoreResponse(scores=[self._score(c.text, request.top_k) for c in request.continuations])

    def _score(self, text: str, top_k: int) -> epb.Score:
        words = text.split() or [text]
        tokens = [self._token(word, place, top_k) for place, word in enumerate(words)]
        is_greedy = all(t.likeliest[0].token_id == t.token_id for t in tokens)
        return epb.Score(tokens=tokens, logprob_sum=math.fsum(t.logprob for t in tokens), is_greedy=is_greedy)

    def _token(self, word: str, place: int, top_k: int) -> epb.ScoredToken:
        token = number(word)
        is_wrong = number(f"{word} {place} wrong") % 1000 < self.wrong * 1000
        others = [number(f"{word} {n}") for n in range(_LIKELIEST - 1)]
        order = [others[0], token, *others[1:]] if is_wrong else [token, *others]
        likely = [epb.LikelyToken(token_id=t, logprob=-0.5 - n) for n, t in enumerate(order)]
        return epb.ScoredToken(token_id=token, logprob=-1.5 if is_wrong else -0.5, likeliest=likely[:top_k])


def number(text: str) -> int:
    """A token id of that text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:2])
