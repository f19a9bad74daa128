"""A session that ends its workers is given up before it has ended the fleet, and takes no other session with it."""

import asyncio

import pytest

from kvroll.v1 import inference_pb2 as inf
from kvroll_gateway.routing.pick import Candidate, pick
from kvroll_gateway.sessions.ports import InstanceLoad, Loss, NoWorker, Seeker
from tests.gateway.conftest import Bench, StartBench, read_events
from tests.gateway.fake_session import MODEL, Script, expected_ids
from tests.gateway.test_ownership_rules import frame, running

POISON = 666
PATIENT = {"worker_lost_seconds": 0.1, "worker_silent_seconds": 5.0}


def poisonous(at: int = 0) -> Script:
    return Script(0.01, dies_of=POISON, dies_at_index=at)


async def send(bench: Bench, prompt: list[int], *, stream: bool = True, count: int = 30) -> str:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": count, "stream": stream, "return_token_ids": True}
    return (await bench.http.post("/v1/completions", json=body)).text


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.fast_where(at=3)
async def test_it_is_given_up_after_the_limit_and_the_client_is_told_why(start: StartBench, at: int) -> None:
    bench = await start(poisonous(at), poisonous(at), **PATIENT)
    last = read_events(await send(bench, [POISON]))[-1]
    assert last.data["error"]["code"] == "session_poisoned"
    assert "replayed at most 2 times" in last.data["error"]["message"]
    assert sum(worker.num_deaths for worker in bench.workers) == 3  # the first, and two replays
    assert bench.metric("kvroll_gateway_sessions_poisoned_total") == 1


async def test_a_client_that_retries_by_itself_is_told_not_to(start: StartBench) -> None:
    bench = await start(poisonous(), **PATIENT, replay_limit=0)
    answer = await bench.http.post("/v1/completions", json={"model": MODEL, "prompt": [POISON], "max_tokens": 3})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "session_poisoned")
    assert answer.headers["x-should-retry"] == "false"
    assert bench.workers[0].num_deaths == 1


@pytest.mark.slow
async def test_a_fleet_of_two_keeps_its_last_worker_and_the_bystander_its_stream(start: StartBench) -> None:
    """Without the quarantine both workers were gone in seconds."""
    bench = await start(poisonous(), poisonous(), **PATIENT, quarantine_seconds=60.0)
    bystander = asyncio.create_task(send(bench, [7], count=300))
    await bench.until(lambda: any(worker.copies for worker in bench.workers))
    (refuge,) = [worker for worker in bench.workers if worker.copies]
    await send(bench, [POISON])
    assert refuge.num_deaths == 0
    *tokens, done = read_events(await bystander)
    assert done.data == "[DONE]"
    assert [event.data["choices"][0]["token_ids"][0] for event in tokens] == expected_ids([7], 300)
    assert bench.metric("kvroll_gateway_replays_total") == 2  # its own
    assert bench.metric("kvroll_gateway_sessions_quarantined_total") == 1
    lost = [bench.metric("kvroll_gateway_workers_lost_total", reason=reason) for reason in Loss]
    assert sum(lost) == 3  # each once, though its successor says it again


@pytest.mark.slow
async def test_where_no_other_worker_comes_back_the_wait_ends(start: StartBench) -> None:
    bench = await start(poisonous(), Script(0.01), **PATIENT, quarantine_seconds=0.6)
    for worker in bench.workers:
        worker.restart_seconds = 600.0
    *_, done = read_events(await send(bench, [POISON]))
    assert done.data == "[DONE]"  # the other worker is proof against it
    assert bench.metric("kvroll_gateway_sessions_poisoned_total") == 0


async def test_a_typed_error_is_no_death(start: StartBench) -> None:
    bench = await start(Script(fail_at_index=2), Script())
    last = read_events(await send(bench, [1]))[-1]
    assert last.data["error"]["code"] == "engine_error"
    assert not any(worker.got("replay") for worker in bench.workers)


def candidate(name: str) -> Candidate:
    return Candidate(name, "m", True, True)


def test_a_suspect_waits_rather_than_take_the_last_healthy_worker() -> None:
    suspect = Seeker("m", suspect=True)
    found = pick([candidate("a")], suspect, InstanceLoad(), ["m"], num_awaited=1)
    assert isinstance(found, NoWorker)
    assert found.quarantined
    assert pick([candidate("a")], Seeker("m"), InstanceLoad(), ["m"], num_awaited=1) == "a"
    assert pick([candidate("a")], suspect, InstanceLoad(), ["m"], num_awaited=0) == "a"  # it is the only one there is
    urgent = Seeker("m", suspect=True, urgent=True)
    assert pick([candidate("a")], urgent, InstanceLoad(), ["m"], num_awaited=1) == "a"


def test_suspects_and_innocents_keep_apart() -> None:
    load = InstanceLoad({"a": 1, "b": 5, "c": 4}, {"a": 0, "b": 5, "c": 0})
    workers = [candidate(name) for name in "abc"]
    assert pick(workers, Seeker("m", suspect=True), load, ["m"]) == "b"
    assert pick(workers, Seeker("m"), load, ["m"]) == "a"
    assert pick([candidate("b")], Seeker("m"), load, ["m"]) == "b"  # rather than nowhere


def test_a_worker_that_was_only_out_of_reach_did_not_die_of_it() -> None:
    machine = running()
    machine.lost("S", certain=False)
    assert (machine.num_deaths, machine.suspect) == (1, True)
    held = inf.HeldSession(session_id="s", epoch=frame(machine, 0).epoch)
    machine.connected("S", held)
    assert (machine.num_deaths, machine.suspect) == (0, False)


def test_one_death_counts_once_and_a_removal_never() -> None:
    machine = running()
    machine.frames("S", [frame(machine, 0)])
    machine.lost("S", certain=False)
    machine.lost("S", certain=True)  # and then its successor answers
    assert (machine.num_deaths, machine.suspect) == (1, False)  # it gave tokens
    machine.placed("T")
    machine.lost("T", certain=True, died=False)
    assert machine.num_deaths == 1
    machine.placed("U")
    machine.lost("U", certain=True)
    assert (machine.num_deaths, machine.suspect) == (2, True)
