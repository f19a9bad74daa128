"""Over the wire: what is wrong with one session is that session's answer; its gateway's stream, and the others on it, go on."""

import math

import pytest

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll_gateway.sessions.phases import OwnershipPhase
from kvroll_worker.own.record import SessionRecord
from kvroll_worker.request import TokenEvent
from kvroll_worker.serve.instance import outgoing
from kvroll_worker.wire import codec
from tests.doubles.engine_double import EngineDouble, undisturbed
from tests.wire.conftest import MakeWorker
from tests.wire.stream_gateway import StreamGateway

PROMPT = list(range(50))
HOSTILE: list[tuple[str, dict[str, object]]] = [
    ("temperature", {"temperature": math.nan}),
    ("temperature", {"temperature": math.inf}),
    ("temperature", {"temperature": -1.0}),
    ("top_p", {"top_p": 0.0}),
    ("top_p", {"top_p": math.nan}),
    ("min_p", {"min_p": 1.5}),
    ("top_k", {"top_k": 2**32 - 1}),
    ("repetition_penalty", {"repetition_penalty": -1.0}),
    ("presence_penalty", {"presence_penalty": math.nan}),
    ("frequency_penalty", {"frequency_penalty": 1e30}),
    ("logit_bias", {"logit_bias": [pb.LogitBias(token_id=1, bias=math.nan)]}),
    ("logit_bias", {"logit_bias": [pb.LogitBias(token_id=1, bias=-math.inf)]}),
    ("logit_bias", {"logit_bias": [pb.LogitBias(token_id=256, bias=1)]}),
    ("stop_token_ids", {"stop_token_ids": [2**32 - 1]}),
    ("stop", {"stop": [""]}),
    ("stop", {"stop": ["x" * 5000]}),
    ("stop", {"stop": ["x"] * 17}),
    ("logprobs", {"logprobs": 21}),
    ("prompt_logprobs", {"prompt_logprobs": 21}),
    ("max_tokens", {"max_tokens": 2**32 - 1}),
    ("min_tokens", {"min_tokens": 65}),
]


async def test_every_bound_is_checked_at_the_border_and_named(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.001))
    await gateway.attach(worker.address)
    bystander = gateway.submit(worker.instance_id, "bystander", PROMPT, max_tokens=60)
    for number, (_, sampling) in enumerate(HOSTILE):
        gateway.submit(worker.instance_id, f"hostile{number}", PROMPT, **sampling)  # type: ignore[arg-type]
    await gateway.until(lambda: len(gateway.rejections) == len(HOSTILE))
    for (field, sampling), rejected in zip(HOSTILE, gateway.rejections, strict=True):
        assert rejected.code == ipb.REJECT_CODE_INVALID, sampling
        assert rejected.message.startswith(f"{field}: expected "), rejected.message
    await gateway.finished("bystander")
    assert list(bystander.log.token_ids) == undisturbed(PROMPT, 60)


async def test_a_tokenizer_that_fails_on_a_prompt_refuses_that_prompt(
    make_worker: MakeWorker, gateway: StreamGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EngineDouble()
    encode = engine.tokenizer.encode
    monkeypatch.setattr(engine.tokenizer, "encode", lambda text: 1 // 0 if text == "bad" else encode(text))
    worker = await make_worker(engine)
    await gateway.attach(worker.address)
    session = gateway.submit(worker.instance_id, "s", PROMPT)
    template = ipb.Submit(session_id="t", model="m", text="bad", sampling=pb.Sampling(top_p=1, max_tokens=4))
    template.epoch.CopyFrom(pb.Epoch(reign=1, gateway_id=gateway.gateway_id, step=1))
    gateway.sessions["t"] = type(session)(template, gateway.gateway_id, 1 << 20)
    gateway._put(gateway.sessions["t"].placed(worker.instance_id))
    await gateway.until(lambda: gateway.rejections)
    assert gateway.rejections[0].code == ipb.REJECT_CODE_INVALID
    assert "tokenizer failed" in gateway.rejections[0].message
    await gateway.finished("s")


async def test_a_message_that_cannot_be_handled_leaves_the_stream_to_the_others(
    make_worker: MakeWorker, gateway: StreamGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.001))
    await gateway.attach(worker.address)
    bystander = gateway.submit(worker.instance_id, "bystander", PROMPT, max_tokens=60)
    admit = worker.host.ledger.admit

    def fails(record: SessionRecord, *args: object) -> object:
        return 1 // 0 if record.admitted.session_id == "sick" else admit(record, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(worker.host.ledger, "admit", fails)
    gateway.submit(worker.instance_id, "sick", PROMPT)
    await gateway.until(lambda: gateway.rejections)
    assert (gateway.rejections[0].session_id, "ZeroDivisionError" in gateway.rejections[0].message) == ("sick", True)
    await gateway.finished("bystander")
    assert list(bystander.log.token_ids) == undisturbed(PROMPT, 60)


async def test_a_frame_that_cannot_be_written_costs_its_session_and_no_frame_of_the_same_step(
    make_worker: MakeWorker, gateway: StreamGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.001))
    await gateway.attach(worker.address)
    written = codec.frame_to_wire

    def fails(event: TokenEvent) -> pb.Frame:
        return pb.Frame(text="\ud83d") if event.session_id == "sick" and event.index == 5 else written(event)

    monkeypatch.setattr(outgoing, "frame_to_wire", fails)
    names = ("first", "sick", "last")
    first, sick, last = (gateway.submit(worker.instance_id, name, PROMPT, max_tokens=40) for name in names)
    await gateway.finished("first", "last")
    assert list(first.log.token_ids) == list(last.log.token_ids) == undisturbed(PROMPT, 40)
    assert sick.phase is OwnershipPhase.FAILED
    assert sick.failure is not None
    assert (sick.failure.code, sick.log.next_index) == ("SessionError", 5)
    await gateway.until(lambda: worker.engine.stats().pages_free == worker.engine.num_pages)
