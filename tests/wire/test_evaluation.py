"""Score over the wire: the figures are the engine's own, users' sessions go on, and nothing is left of a call that ended early."""

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from kvroll.v1 import evaluation_pb2 as epb
from kvroll.v1.evaluation_pb2_grpc import EvaluationServiceStub
from kvroll_kernels.dispatch import native_is_built
from kvroll_worker.engine.engine import Engine
from kvroll_worker.evaluate.forced import logprobs_of
from kvroll_worker.evaluate.scores import Scoring
from kvroll_worker.models import identity
from kvroll_worker.request import SessionFailure, TokenEvent
from kvroll_worker.serve import evaluation
from tests.doubles.engine_settings import engine_config
from tests.wire.conftest import MakeWorker, RunningWorker
from tests.wire.stream_gateway import StreamGateway
from tests.worker.tiny_model import write_model

pytestmark = pytest.mark.slow

MakeTiny = Callable[..., Engine]
IDS = [1 + i * 7 % 200 for i in range(60)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("score") / "model")


@pytest.fixture
def make_tiny(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTiny:
    monkeypatch.setattr(identity, "cache_dir", lambda: tmp_path)

    def make(**settings: Any) -> Engine:
        defaults = {
            "max_sessions": 8,
            "max_batch_tokens": 16,
            "max_model_len": 256,
            "threads": 1,
            "kv_memory_bytes": 4 << 20,
        }
        ops = "native" if native_is_built() else "reference"
        return Engine(engine_config(model, **{"ops": ops, **defaults, **settings}))

    return make


def slowed(engine: Engine, seconds: float = 0.02) -> Engine:
    step = engine.step

    def slow() -> list[TokenEvent | SessionFailure]:
        time.sleep(seconds)
        return step()

    engine.step = slow  # type: ignore[method-assign]
    return engine


def ids(values: list[int]) -> epb.ScoredText:
    return epb.ScoredText(token_ids=epb.TokenIdList(ids=values))


def asked(*continuations: list[int], prompt: list[int] | None = None, **fields: Any) -> epb.ScoreRequest:
    request = epb.ScoreRequest(continuations=[ids(one) for one in continuations], **fields)
    if prompt is not None:
        request.prompt.CopyFrom(ids(prompt))
    return request


def stub(worker: RunningWorker) -> Any:
    return EvaluationServiceStub(worker.channel)


async def refusal(worker: RunningWorker, request: epb.ScoreRequest, **call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub(worker).Score(request, **{"timeout": 30.0, **call})
    return caught.value.code(), caught.value.details() or ""


async def emptied(worker: RunningWorker) -> None:
    """Returns once the engine holds nothing."""
    for _ in range(500):
        if not await worker.host.call(lambda engine: engine.sessions()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the engine still holds sessions")


async def test_the_scores_are_the_engines_own(make_worker: MakeWorker, make_tiny: MakeTiny) -> None:
    rows = logprobs_of(make_tiny(), IDS)
    worker = await make_worker(make_tiny(), admitting=False)  # a gate measures before admission
    response = await stub(worker).Score(asked(IDS[40:], IDS[40:45], prompt=IDS[:40], top_k=3), timeout=60.0)
    assert [len(one.tokens) for one in response.scores] == [20, 5]
    for score in response.scores:
        for at, token in enumerate(score.tokens, start=39):
            assert token.token_id == IDS[at + 1]
            assert token.logprob == rows[at, IDS[at + 1]]
            best = np.argsort(-rows[at], kind="stable")[:3]
            assert [one.token_id for one in token.likeliest] == best.tolist()
            assert [one.logprob for one in token.likeliest] == rows[at, best].tolist()
        assert score.logprob_sum == pytest.approx(sum(token.logprob for token in score.tokens))
        assert score.is_greedy == all(token.likeliest[0].token_id == token.token_id for token in score.tokens)
    await emptied(worker)


async def test_what_the_model_would_say_is_greedy_and_another_thing_is_not(
    make_worker: MakeWorker, make_tiny: MakeTiny
) -> None:
    worker = await make_worker(make_tiny())
    row = logprobs_of(make_tiny(), IDS)[-1]
    best, worst = int(row.argmax()), int(row.argmin())
    response = await stub(worker).Score(asked([best], [worst], IDS[-1:], prompt=IDS[:-1]), timeout=60.0)
    assert [one.is_greedy for one in response.scores] == [True, False, best == IDS[-1]]
    assert [one.tokens[0].logprob for one in response.scores] == [row.max(), row.min(), row[IDS[-1]]]
    whole = await stub(worker).Score(asked(IDS), timeout=60.0)
    assert len(whole.scores[0].tokens) == len(IDS) - 1, "without a prompt all but the first token are scored"
    assert not whole.scores[0].tokens[0].likeliest, "top_k 0 reports none"
    assert response.scores[2].tokens[0] == whole.scores[0].tokens[-1]


async def test_text_is_tokenised_as_one(make_worker: MakeWorker, make_tiny: MakeTiny) -> None:
    worker = await make_worker(make_tiny())
    encode = make_tiny().tokenizer.encode
    text = epb.ScoreRequest(
        prompt=epb.ScoredText(text="The sea "), continuations=[epb.ScoredText(text="is é."), epb.ScoredText(text="x")]
    )
    response = await stub(worker).Score(text, timeout=60.0)
    assert [token.token_id for token in response.scores[0].tokens] == encode("The sea is é.")[len(encode("The sea ")) :]
    by_ids = await stub(worker).Score(asked(encode("is é."), encode("x"), prompt=encode("The sea ")), timeout=60.0)
    assert response == by_ids


async def test_what_can_never_be_scored_is_refused_with_the_arithmetic(
    make_worker: MakeWorker, make_tiny: MakeTiny
) -> None:
    worker = await make_worker(make_tiny())
    both = epb.ScoreRequest(prompt=epb.ScoredText(text="a"), continuations=[ids([1])])
    for request, why in (
        (asked(), "expected 1 to 64 continuations, found 0"),
        (asked(*[[1, 2]] * 65), "found 65"),
        (asked([1]), "continuation 0 has no token to score"),
        (asked([1, 2], [], prompt=[1]), "continuation 1 has no token"),
        (asked([1, 999]), "expected token ids from 0 to 263, found 999"),
        (asked([1, 2], top_k=257), "top_k: expected at most 256"),
        (asked(*[[1] * 200] * 10, top_k=256), "ask for less"),
        (asked([1] * 256), "256 prompt + 1 max_tokens = 257 tokens, more than max_model_len 256"),
        (both, "all as text or all as token_ids"),
    ):
        code, details = await refusal(worker, request)
        assert (code, why in details) == (grpc.StatusCode.INVALID_ARGUMENT, True), details
    code, details = await refusal(worker, asked([1, 2], instance_id="another/boot"))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    await emptied(worker)


async def test_users_sessions_go_on_beside_it_and_count_alone(
    make_worker: MakeWorker, make_tiny: MakeTiny, gateway: StreamGateway
) -> None:
    alone = await make_worker(make_tiny())
    link = await gateway.attach(alone.address)
    gateway.submit(link, "u1", IDS[:20], max_tokens=30, seed=5)
    undisturbed = await gateway.finished("u1")
    worker = await make_worker(slowed(make_tiny(), 0.005))
    link = await gateway.attach(worker.address)
    gateway.submit(link, "u2", IDS[:20], max_tokens=30, seed=5)
    scoring = asyncio.ensure_future(stub(worker).Score(asked(*[IDS[:50]] * 4, prompt=IDS), timeout=60.0))
    await asyncio.sleep(0.05)
    counts = (await worker.report()).sessions
    assert counts.running + counts.waiting == 1, "an evaluation is nobody's session"
    assert await gateway.finished("u2", seconds=120.0) == undisturbed
    assert len((await scoring).scores) == 4


async def test_a_deadline_or_a_cancel_frees_at_once(make_worker: MakeWorker, make_tiny: MakeTiny) -> None:
    worker = await make_worker(slowed(make_tiny(), 0.1))
    long = asked(*[IDS * 4] * 8)
    code, _ = await refusal(worker, long, timeout=0.5)
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    await emptied(worker)
    call = stub(worker).Score(long, timeout=60.0)
    await asyncio.sleep(0.3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await emptied(worker)
    assert worker.host.asides.session_ids == set()


async def test_too_many_calls_are_refused_and_the_others_take_turns(
    make_worker: MakeWorker, make_tiny: MakeTiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MOST_CALLS", 2)
    worker = await make_worker(slowed(make_tiny(), 0.05))
    first = asyncio.ensure_future(stub(worker).Score(asked(*[IDS] * 10), timeout=60.0))
    await asyncio.sleep(0.2)
    second = asyncio.ensure_future(stub(worker).Score(asked(*[IDS] * 4), timeout=60.0))
    await asyncio.sleep(0.2)
    code, details = await refusal(worker, asked(IDS))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "2 evaluations" in details
    await second
    assert not first.done(), "a short call takes turns with the long one"
    assert len((await first).scores) == 10


async def test_a_seal_ends_evaluations_and_is_not_held_up_by_them(make_worker: MakeWorker, make_tiny: MakeTiny) -> None:
    worker = await make_worker(slowed(make_tiny(), 0.1))
    scoring = asyncio.ensure_future(stub(worker).Score(asked(*[IDS * 4] * 8), timeout=60.0))
    await asyncio.sleep(0.3)
    await worker.admit(False)
    await worker.seal()
    with pytest.raises(grpc.aio.AioRpcError, match="is sealed"):
        await scoring
    code, _ = await refusal(worker, asked(IDS))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    await emptied(worker)


async def test_a_model_that_gives_no_numbers_passes_nothing(
    make_worker: MakeWorker, make_tiny: MakeTiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_tiny()
    broken = np.full((8, 264), math.nan, dtype=np.float32)
    monkeypatch.setattr(engine.runner, "logits", lambda rows: broken[: len(rows)])
    worker = await make_worker(engine)
    code, details = await refusal(worker, asked(IDS))
    assert code is grpc.StatusCode.INTERNAL
    assert "finite" in details or "no numbers" in details
    await emptied(worker)
    assert not worker.crashes


async def test_an_evaluation_that_breaks_costs_itself_alone(
    make_worker: MakeWorker, make_tiny: MakeTiny, monkeypatch: pytest.MonkeyPatch, gateway: StreamGateway
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug in what evaluates")

    monkeypatch.setattr(Scoring, "take", broken)
    worker = await make_worker(slowed(make_tiny(), 0.005))
    link = await gateway.attach(worker.address)
    gateway.submit(link, "u", IDS[:20], max_tokens=20)
    code, details = await refusal(worker, asked(IDS))
    assert (code, "a bug in what evaluates" in details) == (grpc.StatusCode.INTERNAL, True)
    assert len((await gateway.finished("u", seconds=120.0))[0]) == 20
    assert not worker.crashes
