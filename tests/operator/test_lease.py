"""The Lease of the operator: one acts, whatever the clocks say, and workers refuse one that was followed."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kvroll.v1 import worker_pb2 as pb
from kvroll_operator.cluster.client import ApiError
from kvroll_operator.cluster.lease import DURATION_SECONDS, LOOK_SECONDS, LeaderLease, LeaseLostError, NoLeasesError
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.workers import OperatorEpoch
from kvroll_worker.serve.control import OperatorFence
from tests.operator.fake_api import FakeApi

PATHS = Paths("default")
LEASE = PATHS.leases("kvroll-operator")


class Clock:
    """Seconds since a start that nobody else knows; sleeping passes them. `at` are things to do once they have come."""

    def __init__(self, start: float = 0.0) -> None:
        self.start = self.now = start
        self.at: dict[float, Any] = {}

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due in [due for due in self.at if self.now - self.start >= due]:
            self.at.pop(due)()
        await asyncio.sleep(0)

    def monotonic(self) -> float:
        return self.now


def side(api: FakeApi, identity: str, clock: Clock | None = None) -> LeaderLease:
    clock = clock or Clock()
    return LeaderLease(api, PATHS, "kvroll-operator", identity, clock.sleep, clock.monotonic)


def wire(epoch: OperatorEpoch) -> pb.OperatorEpoch:
    return pb.OperatorEpoch(lease_uid=epoch.lease_uid, transitions=epoch.transitions)


async def ended(coroutine: Coroutine[Any, Any, None]) -> BaseException:
    with pytest.raises((LeaseLostError, NoLeasesError)) as raised:
        await asyncio.wait_for(coroutine, 5)
    return raised.value


@pytest.mark.parametrize("renewed", ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "nonsense"])
async def test_a_lease_runs_out_by_the_waiting_ones_steady_clock_whatever_the_holders_says(renewed: str) -> None:
    api, clock = FakeApi(), Clock(start=5000.0)
    first = await side(api, "a").acquire()
    await api.patch(LEASE, {"spec": {"renewTime": renewed}})
    second = await side(api, "b", clock).acquire()
    assert (first.transitions, second.transitions) == (1, 2)
    assert second.lease_uid == first.lease_uid
    assert DURATION_SECONDS <= clock.now - clock.start <= DURATION_SECONDS + 3 * LOOK_SECONDS


async def test_the_one_that_was_followed_ends_and_workers_refuse_it() -> None:
    api, fence = FakeApi(), OperatorFence()
    old = side(api, "a")
    before = await old.acquire()
    assert fence.refusal(wire(before)) is None
    after = await side(api, "b").acquire()
    assert fence.refusal(wire(after)) is None
    assert "another operator took over" in (fence.refusal(wire(before)) or "")
    assert "found holder 'b'" in str(await ended(old.keep(lambda epoch: None)))
    assert fence.refusal(pb.OperatorEpoch(lease_uid="", transitions=2**62)), "a caller without a Lease is refused"
    assert fence.refusal(wire(after)) is None, "and ends no holder's rights"


async def test_a_holder_that_renews_keeps_it() -> None:
    api, clock = FakeApi(), Clock()
    holder = side(api, "a")
    await holder.acquire()

    async def renew() -> None:
        spec = api.objects[LEASE]["spec"]
        await api.patch(LEASE, {"spec": {**spec, "renewTime": "later"}})

    waiting = asyncio.create_task(side(api, "b", clock).acquire())
    while clock.now < 10 * DURATION_SECONDS:
        await renew()
        await asyncio.sleep(0)
    assert not waiting.done()
    await holder.release()
    epoch = await asyncio.wait_for(waiting, 5)
    assert epoch.transitions == 2, "given back, it is taken at once, and counted"


async def test_a_process_that_comes_again_in_its_pod_need_not_wait_and_is_another_epoch() -> None:
    api, clock = FakeApi(), Clock()
    before = await side(api, "a").acquire()
    after = await side(api, "a", clock).acquire()
    assert clock.now == 0
    assert after == OperatorEpoch(before.lease_uid, before.transitions + 1)


async def test_of_two_that_come_at_once_one_holds_it() -> None:
    api, clock = FakeApi(), Clock()
    real = api.create
    raced: list[OperatorEpoch] = []

    async def create(path: str, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        if not raced:
            raced.append(await side_b())
        return await real(path, body, dry_run=dry_run)

    async def side_b() -> OperatorEpoch:
        api.create = real  # type: ignore[method-assign]
        return await side(api, "b").acquire()

    api.create = create  # type: ignore[method-assign]
    epoch = await side(api, "a", clock).acquire()
    assert raced == [OperatorEpoch(epoch.lease_uid, 1)]
    assert epoch.transitions == 2
    assert clock.now > DURATION_SECONDS, "the second waited until the first's ran out"


async def test_an_api_server_that_is_away_takes_the_lease_from_nobody() -> None:
    api, clock = FakeApi(), Clock()
    api.refuse[LEASE] = 503
    clock.at[60.0] = api.refuse.clear
    holder = side(api, "a", clock)
    epoch = await holder.acquire()
    api.refuse[LEASE] = 503
    clock.at[clock.now + 120.0] = api.refuse.clear
    keeping = asyncio.create_task(holder.keep(lambda epoch: None))
    while api.refuse:
        await asyncio.sleep(0)
        assert not keeping.done()
    version = api.objects[LEASE]["metadata"]["resourceVersion"]
    while api.objects[LEASE]["metadata"]["resourceVersion"] == version:
        await asyncio.sleep(0)
        assert not keeping.done()
    assert holder.epoch == epoch
    keeping.cancel()


async def test_a_lease_that_somebody_deletes_is_made_anew_and_workers_follow() -> None:
    api, fence = FakeApi(), OperatorFence()
    holder = side(api, "a")
    before = await holder.acquire()
    assert fence.refusal(wire(before)) is None
    del api.objects[LEASE]
    told: list[OperatorEpoch] = []
    keeping = asyncio.create_task(holder.keep(told.append))
    while not told:
        await asyncio.sleep(0)
    keeping.cancel()
    assert told[0].lease_uid != before.lease_uid
    assert fence.refusal(wire(told[0])) is None
    assert "was followed by" in (fence.refusal(wire(before)) or "")


async def test_without_leases_it_says_what_to_do() -> None:
    api = FakeApi()
    api.refuse[PATHS.leases()] = 404

    async def acquire() -> None:
        await side(api, "a").acquire()

    assert "start with --lease= where only one operator can run" in str(await ended(acquire()))


async def test_a_write_that_comes_too_late_takes_nothing() -> None:
    api = FakeApi()
    await side(api, "a").acquire()
    late = side(api, "a")
    real = api.patch

    async def patch(path: str, body: dict[str, Any]) -> dict[str, Any]:
        api.patch = real  # type: ignore[method-assign]
        await real(path, {"spec": {"holderIdentity": "c", "leaseTransitions": 7}})
        raise ApiError(409, "changed")

    api.patch = patch  # type: ignore[method-assign]
    epoch = await late.acquire()
    assert epoch.transitions == 8
