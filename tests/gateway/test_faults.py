"""Workers die, hand over, stammer and refuse; the client sees each token once, in order, and the right ones."""

import asyncio
from typing import Any

import httpx
import pytest

from kvroll.v1 import inference_pb2 as inf
from kvroll.v1 import ownership_pb2 as own
from tests.gateway.conftest import Bench, Event, StartBench, read_events
from tests.gateway.fake_session import MODEL, Script, expected_ids, read_epoch

PROMPT = [5, 6, 7]
TOKENS = 40
BODY = {"model": MODEL, "prompt": PROMPT, "max_tokens": TOKENS, "stream": True, "return_token_ids": True}
SLOW = 0.01


def streaming(bench: Bench, **change: Any) -> "asyncio.Task[httpx.Response]":
    return asyncio.create_task(bench.http.post("/v1/completions", json={**BODY, **change}))


async def delivered(bench: Bench, count: int) -> str:
    """Waits for so many tokens; the session's id."""
    await bench.until(lambda: bench.metric("kvroll_gateway_tokens_delivered_total", model=MODEL) >= count)
    return bench.only_session()


async def whole(stream: "asyncio.Task[httpx.Response]", count: int = TOKENS) -> list[Event]:
    """The token events of a stream that must be complete and undisturbed."""
    *tokens, done = read_events((await stream).text)
    assert done.data == "[DONE]", done
    assert [event.index for event in tokens] == list(range(count))
    assert [event.data["choices"][0]["token_ids"][0] for event in tokens] == expected_ids(PROMPT, count)
    assert tokens[-1].data["kvroll"]["record"]["completion_tokens"] == count
    return tokens


def owner_of(bench: Bench, session_id: str) -> int:
    (number,) = [number for number, worker in enumerate(bench.workers) if session_id in worker.copies]
    return number


async def test_a_killed_worker_is_replaced_in_mid_stream(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    stream = streaming(bench)
    session_id = await delivered(bench, 5)
    first = owner_of(bench, session_id)
    await bench.workers[first].die()
    tokens = await whole(stream)
    (replay,) = [one.replay for one in bench.workers[1 - first].got("replay")]
    assert list(replay.state.output_token_ids) == expected_ids(PROMPT, len(replay.state.output_token_ids))
    assert replay.state.emitted_chars == sum(
        len(event.data["choices"][0]["text"]) for event in tokens[: len(replay.state.output_token_ids)]
    )
    assert [one["mode"] for one in tokens[-1].data["kvroll"]["precision_epochs"]] == ["Start", "Replay"]
    assert {event.id.split(".")[1] for event in tokens} == {"1-gw-test-1", "1-gw-test-2"}
    assert bench.metric("kvroll_gateway_replays_total") == 1
    assert bench.metric("kvroll_gateway_sessions_lost_total") == 0


@pytest.mark.slow
async def test_a_restarted_worker_has_lost_its_sessions_for_certain(start: StartBench) -> None:
    bench = await start(Script(SLOW), worker_lost_seconds=30, worker_silent_seconds=30)
    stream = streaming(bench)
    await delivered(bench, 5)
    await bench.workers[0].die()
    await bench.workers[0].restart()  # another instance: the gateway need not wait to know
    await whole(stream)
    assert bench.metric("kvroll_gateway_replays_total") == 1


@pytest.mark.slow
async def test_a_replay_waits_for_room_while_the_client_waits(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW, admitting=False))
    stream = streaming(bench)
    await delivered(bench, 5)
    await bench.workers[0].die()
    await asyncio.sleep(0.6)
    assert not stream.done()
    bench.workers[1].set_admitting(True)
    await whole(stream)
    assert ": keep-alive" in (await stream).text


async def test_a_session_that_nobody_can_go_on_with_is_counted_lost(start: StartBench) -> None:
    bench = await start(Script(SLOW), replay_deadline_seconds=0.3)
    stream = streaming(bench)
    await delivered(bench, 5)
    await bench.workers[0].die()
    last = read_events((await stream).text)[-1]
    assert last.data["error"]["code"] == "session_lost"
    assert bench.metric("kvroll_gateway_sessions_lost_total") == 1


async def test_a_move_in_mid_stream(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    stream = streaming(bench)
    session_id = await delivered(bench, 5)
    first = owner_of(bench, session_id)
    bench.workers[first].move(session_id, bench.workers[1 - first])
    tokens = await whole(stream)
    answers = [one.transfer_answer.result for one in bench.workers[first].got("transfer_answer")]
    assert answers == [own.TRANSFER_RESULT_COMMITTED]
    assert {event.id.split(".")[1] for event in tokens} == {"1-gw-test-1", "1-gw-test-2"}
    assert bench.metric("kvroll_gateway_moves_total", verdict="Exact") == 1


async def test_a_worker_that_dies_after_a_move_is_replayed_with_the_whole_history(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    stream = streaming(bench)
    session_id = await delivered(bench, 5)
    first = owner_of(bench, session_id)
    bench.workers[first].move(session_id, bench.workers[1 - first])
    await bench.until(lambda: bench.metric("kvroll_gateway_moves_total", verdict="Exact") == 1)
    await delivered(bench, 12)
    await bench.workers[1 - first].die()
    tokens = await whole(stream)
    assert [one["mode"] for one in tokens[-1].data["kvroll"]["precision_epochs"]] == ["Start", "Exact", "Replay"]


async def test_a_refused_activate_sends_the_source_on(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    stream = streaming(bench)
    session_id = await delivered(bench, 5)
    source = bench.workers[owner_of(bench, session_id)]
    target = next(worker for worker in bench.workers if worker is not source)
    target.script.refuse_activate = True
    source.move(session_id, target)
    await whole(stream)
    (answer,) = [one.transfer_answer for one in source.got("transfer_answer")]
    assert answer.result == own.TRANSFER_RESULT_RESUME
    (activate,) = [one.activate for one in target.got("activate")]
    assert read_epoch(answer.resume_epoch) > read_epoch(activate.epoch) > read_epoch(answer.epoch)


async def test_a_target_that_dies_before_it_answers_sends_the_source_on(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    stream = streaming(bench)
    session_id = await delivered(bench, 5)
    source = bench.workers[owner_of(bench, session_id)]
    target = next(worker for worker in bench.workers if worker is not source)
    target.script.ignore_activate = True
    source.move(session_id, target)
    await bench.until(lambda: target.got("activate"))
    await target.die()
    await whole(stream)
    assert bench.metric("kvroll_gateway_moves_resumed_total") == 1
    assert bench.metric("kvroll_gateway_replays_total") == 0


@pytest.mark.slow
async def test_a_target_that_was_gone_before_it_was_named_sends_the_source_on(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    stream = streaming(bench, max_tokens=200)
    session_id = await delivered(bench, 5)
    source = bench.workers[owner_of(bench, session_id)]
    target = next(worker for worker in bench.workers if worker is not source)
    await target.die()
    await asyncio.sleep(0.5)  # the gateway has counted it lost before the move is asked for
    source.move(session_id, target)
    await whole(stream, 200)
    assert bench.metric("kvroll_gateway_moves_resumed_total") == 1


async def test_activate_is_repeated_after_the_stream_broke(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW), worker_lost_seconds=30, worker_silent_seconds=30)
    stream = streaming(bench)
    session_id = await delivered(bench, 5)
    source = bench.workers[owner_of(bench, session_id)]
    target = next(worker for worker in bench.workers if worker is not source)
    target.script.ignore_activate = True
    source.move(session_id, target)
    await bench.until(lambda: target.got("activate"))
    target.script.ignore_activate = False
    target.break_stream()
    await whole(stream)
    assert len(target.got("activate")) >= 2


async def test_frames_lost_with_a_broken_stream_are_sent_again(start: StartBench) -> None:
    bench = await start(Script(SLOW), worker_lost_seconds=30, worker_silent_seconds=30)
    stream = streaming(bench)
    for count in (5, 15, 25):
        await delivered(bench, count)
        bench.workers[0].break_stream()
    await whole(stream)
    assert bench.workers[0].got("resume")
    assert bench.metric("kvroll_gateway_replays_total") == 0


async def test_a_missing_frame_is_asked_for(start: StartBench) -> None:
    bench = await start(Script(swallow_index=7))
    await whole(streaming(bench))
    assert bench.workers[0].got("resume")[0].resume.next_index == 7


async def test_duplicates_are_dropped_and_counted(start: StartBench) -> None:
    bench = await start(Script(duplicate_frames=True))
    await whole(streaming(bench))
    assert bench.metric("kvroll_gateway_duplicates_dropped_total") >= TOKENS - 1


async def test_an_admission_that_was_lost_with_the_stream_is_asked_for_again(start: StartBench) -> None:
    bench = await start(Script(swallow_submitted=True))
    await whole(streaming(bench))
    assert len(bench.workers[0].got("submit")) == 2


async def test_a_client_that_disconnects_frees_its_session(start: StartBench) -> None:
    bench = await start(Script(SLOW))
    stream = streaming(bench, max_tokens=10_000)
    await delivered(bench, 3)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    await bench.until(lambda: not bench.workers[0].copies)
    assert bench.workers[0].got("cancel")[0].cancel.reason == "client disconnected"
    await bench.until(
        lambda: bench.metric("kvroll_gateway_sessions_ended_total", model=MODEL, outcome="cancelled") == 1
    )


async def test_a_client_that_disconnects_during_a_move_frees_both_copies(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    stream = streaming(bench, max_tokens=10_000)
    session_id = await delivered(bench, 3)
    source = bench.workers[owner_of(bench, session_id)]
    target = next(worker for worker in bench.workers if worker is not source)
    target.script.ignore_activate = True
    source.move(session_id, target)
    await bench.until(lambda: target.got("activate"))
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    await bench.until(
        lambda: target.got("cancel") and source.got("cancel") and not target.prepared and not source.copies
    )
    assert source.got("cancel")[0].cancel.reason == target.got("cancel")[0].cancel.reason == "client disconnected"


async def test_a_slow_client_is_cut_off_and_holds_no_worker(start: StartBench) -> None:
    bench = await start(Script(0.001), log_frames=8)
    from kvroll_gateway.openai.requests import CompletionRequest
    from kvroll_gateway.openai.submit import make_submits

    request = CompletionRequest(model=MODEL, prompt=[PROMPT], max_tokens=10_000)
    session = bench.gateway.table.open(make_submits(request, 16)[0])  # nobody reads it
    await bench.until(lambda: session.ownership.failure is not None)
    assert session.ownership.failure is not None
    assert session.ownership.failure.code == "client_too_slow"
    await bench.until(lambda: not bench.workers[0].copies)
    assert bench.metric("kvroll_gateway_sessions_lost_total") == 0


async def test_a_refused_submit_tries_another_worker(start: StartBench) -> None:
    bench = await start(Script(reject=inf.REJECT_CODE_UNAVAILABLE), Script())
    await asyncio.gather(*[whole(streaming(bench)) for _ in range(3)])
    assert bench.workers[0].got("submit")


@pytest.mark.parametrize(
    "script", [Script(reject=inf.REJECT_CODE_UNAVAILABLE), Script(admitting=False)], ids=["full", "closed"]
)
async def test_no_worker_means_503_with_retry_after(start: StartBench, script: Script) -> None:
    bench = await start(script)
    answer = await streaming(bench)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker_available")
    assert answer.headers["retry-after"] == "1"


async def test_an_engine_error_ends_the_stream_with_a_typed_error(start: StartBench) -> None:
    bench = await start(Script(fail_at_index=4))
    events = read_events((await streaming(bench)).text)
    assert [event.index for event in events[:-1]] == [0, 1, 2, 3]
    assert events[-1].data["error"]["code"] == "engine_error"
    assert bench.metric("kvroll_gateway_sessions_lost_total") == 1


async def test_new_sessions_go_to_the_least_loaded(start: StartBench) -> None:
    bench = await start(Script(SLOW), Script(SLOW))
    await asyncio.gather(*[whole(streaming(bench)) for _ in range(6)])
    assert [len(worker.got("submit")) for worker in bench.workers] == [3, 3]


async def test_a_draining_gateway_finishes_its_streams_and_takes_no_more(start: StartBench) -> None:
    bench = await start(Script(SLOW))
    stream = streaming(bench)
    await delivered(bench, 3)
    drain = asyncio.create_task(bench.gateway.drain())
    await asyncio.sleep(0)
    refused = await streaming(bench)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_draining")
    assert (await bench.http.get("/readyz")).status_code == 503
    assert (await bench.http.get("/health")).status_code == 503
    await whole(stream)
    assert await drain == 0
