"""What a worker reports for the price of a rollout, and that the price is what the drain then counts."""

from dataclasses import replace

import pytest

from kvroll_core.precision.precision import Precision
from kvroll_core.price import PlacedWorker, Price, PriceAsk, RateSource, RollSettings, SessionClass, Wish, gather, price
from kvroll_core.words import WayOn
from kvroll_operator.api.facts import worker_facts
from kvroll_worker.serve.instance.measured import Measured
from tests.doubles.engine_double import EngineDouble
from tests.wire.conftest import MakeWorker, RunningWorker
from tests.wire.stream_gateway import StreamGateway

OLD = Wish("file:///m", Precision())


async def asked(worker: RunningWorker, new: Wish) -> PriceAsk:
    """The price's question for a pool of this one worker."""
    facts = worker_facts(await worker.report())
    assert facts is not None
    placed = [PlacedWorker(0, "a", facts)]
    ask = gather(placed, {"a": OLD, "b": new}, "b", order=[0], settings=RollSettings())
    assert ask is not None
    return ask


async def priced(worker: RunningWorker, new: Wish) -> Price:
    return price(await asked(worker, new))


async def test_sessions_are_reported_by_length(make_worker: MakeWorker, gateway: StreamGateway) -> None:
    worker = await make_worker(EngineDouble(step_seconds=0.005))
    await gateway.attach(worker.address)
    short = [gateway.submit(worker.instance_id, f"s{n}", [1] * 20, max_tokens=800) for n in range(3)]
    long = gateway.submit(worker.instance_id, "long", [2] * 1000, max_tokens=800, reproducible=True)
    await gateway.until(lambda: all(s.log.next_index >= 2 for s in (*short, long)))
    report = await worker.report()
    assert sum(c.sessions for c in report.lengths) == report.sessions.running == 4
    [exact] = [c for c in report.lengths if c.reproducible]
    assert (exact.sessions, 1000 < exact.tokens < 1800) == (1, True)
    assert exact.tokens + exact.max_remaining_tokens == 1800
    assert exact.pages == -(-exact.tokens // 32)
    others = [c for c in report.lengths if not c.reproducible]
    assert sum(c.tokens + c.max_remaining_tokens for c in others) == 3 * 820
    assert report.rates.step_seconds > 0
    assert report.rates.prefill_token_seconds > 0
    assert report.rates.move_bytes_per_second == 0, "nothing was moved yet"


async def test_an_empty_worker_reports_no_class_and_costs_nothing(make_worker: MakeWorker) -> None:
    worker = await make_worker()
    found = await priced(worker, replace(OLD, precision=Precision(kv_cache="int8")))
    assert (found.sessions, found.bytes_to_move, found.ways) == (0, 0, ())
    assert found.rates.step_seconds.source is RateSource.ASSUMED


@pytest.mark.parametrize(("weights", "way"), [("int8", WayOn.REPLAY), ("bf16", WayOn.CONVERT)])
async def test_the_price_is_what_the_drain_then_counts(
    make_worker: MakeWorker, gateway: StreamGateway, weights: str, way: WayOn
) -> None:
    kv_cache = "bf16" if way is WayOn.REPLAY else "int8"
    source = await make_worker(EngineDouble(step_seconds=0.002))
    target = await make_worker(EngineDouble(weights=weights, kv_cache=kv_cache))
    for worker in (source, target):
        await gateway.attach(worker.address)
    sessions = [gateway.submit(source.instance_id, f"s{n}", [n + 1] * 1500, max_tokens=2000) for n in range(3)]
    await gateway.until(lambda: all(s.log.next_index >= 5 for s in sessions))
    planned = await priced(source, replace(OLD, precision=Precision(weights, kv_cache)))
    await source.admit(False)
    await source.drain(target.target())
    counted = await source.drained()
    assert planned.held == counted.held == planned.way(way).sessions == 3
    assert planned.tokens_to_replay == pytest.approx(counted.tokens_replayed, rel=0.3)
    # The double's pages are 32 bytes a token in int8, the format table's of its shape are 40.
    assert planned.bytes_to_move == pytest.approx(counted.unique_bytes * 40 / 32, rel=0.3)
    rate = (await source.report()).rates.move_bytes_per_second
    assert (rate > 0) == (way is WayOn.CONVERT)


def test_a_class_says_the_mean_of_its_sessions() -> None:
    found = SessionClass(3, 100, 50, 6)
    assert (found.mean_tokens, found.mean_remaining_tokens) == (34, 17)


def test_sessions_that_wait_together_share_the_seconds() -> None:
    measured = Measured()
    measured.prefilled(100, 0, submitted_at=10.0, now=12.0)
    measured.prefilled(100, 0, submitted_at=10.0, now=14.0)
    measured.prefilled(100, 80, submitted_at=20.0, now=22.0)
    rates = measured.to_wire(0.0)
    assert rates.prefill_token_seconds == pytest.approx(6 / 220), "what the prefix cache had is not computed"
    assert rates.prefill_context_tokens == pytest.approx((100 * 50 + 100 * 50 + 20 * 90) / 220)
    measured.moved(0, 5.0)
    assert measured.move_bytes_per_second == 0, "a replay brings no bytes"
    measured.moved(1000, 0.5)
    assert measured.move_bytes_per_second == pytest.approx(2000)
