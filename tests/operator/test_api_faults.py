"""The API may do anything: every request of a pool's life fails in every way, and the pool gets there even so; no loop ends."""

import asyncio
import contextlib
import random

import pytest
from prometheus_client import generate_latest

from kvroll_operator import main
from kvroll_operator.backoff import Backoff
from kvroll_operator.cluster.client import ApiError, ApiProblem
from kvroll_operator.pools import Pools
from tests.operator.fake_site import PATHS, Site
from tests.operator.faulty_api import FaultyApi

KINDS = (
    "GET kvpools/*",
    "LIST pods",
    "LIST controllerrevisions",
    "LIST kvdrains",
    "TRY pods",
    "POST pods",
    "POST kvdrains",
    "POST events",
    "APPLY controllerrevisions/*",
    "APPLY kvpools/*/status",
    "APPLY services/*",
    "APPLY poddisruptionbudgets/*",
    "PATCH kvpools/*",
    "PATCH pods/*",
    "PATCH controllerrevisions/*",
    "PATCH kvdrains/*/status",
    "DELETE pods/*",
)


async def one_pass(site: Site) -> None:
    """As the loop does it: what a pass may raise is an ApiError."""
    with contextlib.suppress(ApiError):
        await site.loops["chat"].once()
    site.run_pods()
    site.now += 10


async def roll(site: Site, most: int = 150) -> None:
    """The pool is made and rolled once."""
    await site.make("chat", sessions={"allow": ["Finish"]})
    for precision in ("bf16", "int8"):
        site.change(precision={"weights": "bf16", "kvCache": precision})
        for _ in range(most):
            await one_pass(site)
            is_now = (
                site.pool()["status"]["observedGeneration"] == site.pool()["metadata"]["generation"]
                if "status" in site.pool()
                else False
            )
            if is_now and site.condition("RolloutComplete")[0] == "True":
                break
        else:
            raise AssertionError(f"not there in {most} passes: {site.pool().get('status')}")
    contents = {p["metadata"]["labels"]["kvroll.dev/revision"] for p in site.owned("Pod")}
    assert (len(site.owned("Pod")), len(contents)) == (2, 1)


async def test_these_are_all_the_requests_of_a_roll() -> None:
    api = FaultyApi()
    await roll(Site(api))
    inner = {"POST kvpools", "GET kvdrains/*", "GET pods/*", "GET controllerrevisions/*"}
    assert api.kinds - inner == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_that_fails_in_every_way_holds_nothing_up_for_good(kind: str) -> None:
    """As often as it is made: refused, unanswered, garbled, stale; each second time after it took effect, as when the connection is cut."""
    api = FaultyApi()
    problems = [*ApiProblem, *ApiProblem]

    def decide(asked: str) -> tuple[ApiProblem, bool] | None:
        return (problems.pop(), len(problems) % 2 == 0) if asked == kind and problems else None

    site = Site(api)
    api.decide = decide
    await roll(site)
    assert len(problems) < 2 * len(ApiProblem), "it was made at least once"


@pytest.mark.parametrize("seed", range(6))
async def test_a_third_of_all_requests_fail(seed: int) -> None:
    draw = random.Random(seed)
    api = FaultyApi()

    def decide(kind: str) -> tuple[ApiProblem, bool] | None:
        return (draw.choice(list(ApiProblem)), draw.random() < 0.5) if draw.random() < 0.3 else None

    site = Site(api)
    api.decide = lambda kind: None if kind == "POST kvpools" else decide(kind)
    await roll(site, most=1500)


@pytest.mark.slow
async def test_no_loop_ends_while_the_api_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("AT_ONCE_SECONDS", 0.001), ("BUSY_SECONDS", 0.002), ("IDLE_SECONDS", 0.01)):
        monkeypatch.setattr(f"kvroll_operator.pool_loop.{name}", seconds)
    monkeypatch.setattr("kvroll_operator.pools.RESYNC_SECONDS", 0.01)
    monkeypatch.setattr(Backoff, "next_seconds", lambda self, at_least_seconds=0.0: 0.002)
    api = FaultyApi()
    site = Site(api)
    await site.make("chat")
    pools = Pools(api, site.workers, PATHS, "", site.metrics)
    resync = asyncio.create_task(pools.resync())
    draw = random.Random(1)
    # Not even this is what the client promises to raise.
    api.decide = lambda kind: (draw.choice(list(ApiProblem)), False)
    await asyncio.sleep(0.2)
    monkeypatch.setattr(api, "list", None)
    await asyncio.sleep(0.1)
    monkeypatch.undo()
    api.decide = lambda kind: None
    assert not resync.done()
    assert pools.problem() == ""
    async with asyncio.timeout(60):
        while site.condition("RolloutComplete")[0] != "True":
            site.run_pods()
            pools.touch("chat")
            await asyncio.sleep(0.02)
    resync.cancel()
    await asyncio.gather(resync, return_exceptions=True)
    await pools.close()
    page = generate_latest(site.metrics.registry).decode()
    assert "kvroll_operator_resync_errors_total 0.0" not in page


async def test_watches_that_cannot_go_on_are_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "next_seconds", lambda self, at_least_seconds=0.0: 0.001)
    begun = 0

    async def watching() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise RuntimeError("the credentials were refused")

    await main._watch(watching)
    assert begun == 3


def test_delays_grow_are_bounded_and_differ() -> None:
    drawn = Backoff(first_seconds=1, most_seconds=30)
    delays = [drawn.next_seconds() for _ in range(60)]
    assert all(0.5 <= d <= 30 for d in delays)
    assert len(set(delays)) > 50
    assert min(delays[10:]) >= 15
    assert drawn.next_seconds(60) >= 60
    drawn.reset()
    assert drawn.next_seconds() <= 1
