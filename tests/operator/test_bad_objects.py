"""One bad object stops one object: whatever somebody writes where we read, no pass crashes, and the status says what is wrong."""

import asyncio
import copy
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvroll_operator.cluster.client import ApiError
from kvroll_operator.cluster.observe import is_owned
from kvroll_operator.pools import Pools
from tests.operator.fake_site import PATHS, Site

WORDS = [
    "",
    "oops",
    "true",
    "false",
    "-1",
    "0",
    "9" * 20,
    "1e999",
    "NaN",
    "[]",
    "{}",
    "[1]",
    '["a"]',
    "null",
    "é",
    "120s",
    "0-9",
]
WORDS += ['{"seq": 1}', '[{"group": -5}]', "2026-01-01T00:00:00Z", "99999999-01-01", "\x00", "[" * 3000]
VALUES: list[Any] = [*WORDS, None, 0, -1, 10**12, 1.5, True, [], {}, [None], {"a": {}}, "gpu"]


async def rolled_half_way() -> Site:
    """A pool in the middle of a rollout, with a drain under way."""
    site = Site()
    await site.make("chat", replicas=3)
    await site.settle()
    for pod in site.owned("Pod"):
        site.workers.sessions[pod["metadata"]["uid"]] = 2
    site.change(precision={"weights": "bf16", "kvCache": "int8"})
    for _ in range(30):
        await site.passes()
        if site.owned("WorkerDrain"):
            return site
    raise AssertionError("no drain began")


def places(found: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every field of an object that somebody may write."""
    here = [path] if path else []
    inner = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return here + [place for key, value in inner for place in places(value, (*path, key))]


FIXED = {"name", "uid", "resourceVersion", "creationTimestamp", "generation", "namespace"}


def vandalise(item: dict[str, Any], draw: random.Random) -> str:
    """One field of one object becomes something else, as far as the API server would let it: metadata are texts, names stay, and a Pod is
    of the form of a Pod.
    """
    free = {"InferencePool": ("metadata", "spec"), "ControllerRevision": ("metadata", "data")}.get(
        item["kind"], ("metadata",)
    )
    fields = [p for p in places(item) if p[0] in free]
    fields = [
        p for p in fields if not (p[0] == "metadata" and (len(p) == 1 or p[1] in FIXED or p[1] == "ownerReferences"))
    ]
    place = draw.choice(fields)
    holder: Any = item
    for key in place[:-1]:
        holder = holder[key]
    is_text = place[0] == "metadata" and len(place) > 2
    value = draw.choice(WORDS) if is_text else draw.choice(VALUES)
    if place[0] == "metadata" and len(place) == 2:
        value = draw.choice([None, {}] if place[1] != "finalizers" else [None, []])
    if draw.random() < 0.3 and isinstance(holder, dict):
        del holder[place[-1]]
        return f"{place} removed"
    holder[place[-1]] = value
    return f"{place} = {value!r:.40}"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
@example(1535)  # a pool without any spec
@pytest.mark.slow
def test_no_vandalism_crashes_a_pass(seed: int) -> None:
    async def run() -> None:
        draw = random.Random(seed)
        site = await rolled_half_way()
        await site.make("other")
        done = []
        for _ in range(draw.randint(1, 4)):
            kind = draw.choice(["pool", "Pod", "ControllerRevision", "WorkerDrain"])
            items = [site.pool()] if kind == "pool" else site.owned(kind)
            if items:
                done.append(f"{kind}: {vandalise(draw.choice(items), draw)}")
            for _ in range(3):
                try:
                    await site.loops["chat"].once()
                except ApiError:
                    pass  # the API server in memory refuses as the real one does
                except Exception as error:
                    raise AssertionError(f"a pass crashed after {done}") from error
                site.now += 40
        assert site.pool("chat").get("status"), done
        await site.settle("other")

    asyncio.run(run())


def write(item: dict[str, Any], value: Any, *path: str) -> None:
    for name in path[:-1]:
        item = item.setdefault(name, {})
    item[path[-1]] = value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("done", "oops"),
        ("done", "5,x"),
        ("done", "0-99999999999"),
        ("turn", '[{"group": -5, "at": 1, "step": "Surge"}]'),
        ("turn", '[{"group": 1, "at": 1e300, "step": "Surge"}]'),
        ("plan", "null"),
        ("plan", "{}"),
        ("plan", '{"id":"x","seq":99,"to":"elsewhere","reason":"Update","started_at":1}'),
        ("stable", "-3"),
        ("pinned", "[]"),
        ("leaving", "[[1]]"),
        ("evidence", "{}"),
    ],
)
async def test_a_record_that_cannot_be_read_stops_its_pool_and_says_so(annotation: str, value: str) -> None:
    site = await rolled_half_way()
    (holder,) = [r for r in site.owned("ControllerRevision") if "kvroll.dev/turn" in r["metadata"]["annotations"]]
    kept = copy.deepcopy(holder["metadata"]["annotations"])
    write(holder, value, "metadata", "annotations", f"kvroll.dev/{annotation}")
    before = {p["metadata"]["name"] for p in site.owned("Pod")}
    await site.passes(5)
    assert {p["metadata"]["name"] for p in site.owned("Pod")} == before
    word, reason, message = site.condition("Degraded")
    assert (word, reason) == ("True", "ObjectUnreadable")
    assert f"kvroll.dev/{annotation}" in message
    assert site.condition("Stalled")[:2] == ("True", "ObjectUnreadable")
    holder["metadata"]["annotations"] = kept
    site.workers.sessions.clear()
    await site.settle()


async def test_a_pool_with_an_unreadable_record_can_still_be_deleted() -> None:
    site = await rolled_half_way()
    for item in site.owned("ControllerRevision"):
        write(item, "oops", "metadata", "annotations", "kvroll.dev/turn")
    site.workers.sessions.clear()
    site.pool()["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for _ in range(40):
        if await site.loops["chat"].once() is None:
            return
        site.run_pods()
    raise AssertionError(f"not released: {site.pool()['status']}")


@pytest.mark.parametrize("name", ["group", "index", "revision", "incarnation", "pool", "protected", "admitted"])
@pytest.mark.parametrize("value", [None, "oops", "7"])
async def test_labels_of_a_worker_are_written_back(name: str, value: str | None) -> None:
    site = Site()
    await site.make("chat")
    await site.settle()
    pod = site.owned("Pod")[0]
    labels = pod["metadata"]["labels"]
    before = dict(labels)
    if value is None:
        del labels[f"kvroll.dev/{name}"]
    else:
        labels[f"kvroll.dev/{name}"] = value
    await site.passes(8)
    pods = {p["metadata"]["name"]: p["metadata"]["labels"] for p in site.owned("Pod")}
    assert pods[pod["metadata"]["name"]] == before
    assert len(pods) == 2
    await site.settle()


async def test_a_pod_that_somebody_else_gave_our_name_to_is_passed_over() -> None:
    site = Site()
    await site.make("chat", replicas=1)
    await site.settle()
    (ours,) = site.owned("Pod")
    path = PATHS.pods(ours["metadata"]["name"])
    foreign = {"metadata": {"name": ours["metadata"]["name"], "labels": {}}, "spec": {}}
    del site.api.objects[path]
    await site.api.create(PATHS.pods(), foreign)
    await site.settle()
    assert is_owned(site.owned("Pod")[0], site.pool()["metadata"]["uid"])
    assert site.owned("Pod")[0]["metadata"]["name"].endswith("-0-0-1")


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        ({"template": {"spec": {"terminationGracePeriodSeconds": "120s"}}}, "TemplateInvalid", "120s"),
        ({"template": {"spec": {"containers": "engine"}}}, "TemplateInvalid", "no worker Pod can be made"),
        ({"flavour": "new"}, "UnknownField", "spec.flavour"),
        ({"rollout": {"maxSurge": 1, "newer": {"a": 1}}}, "UnknownField", "spec.rollout.newer"),
        ({"rollout": {"maxSurge": "many"}}, "SpecUnreadable", "spec.rollout.maxSurge"),
        ({"sessions": {"allow": ["Teleport"]}}, "SpecUnreadable", "spec.sessions.allow"),
        ({"precision": None}, "SpecUnreadable", "spec.precision"),
    ],
)
async def test_a_spec_that_cannot_be_followed_is_not_accepted_and_its_workers_stay(
    spec: dict[str, Any], reason: str, says: str
) -> None:
    site = Site()
    await site.make("chat")
    await site.make("other")
    await site.settle()
    before = {p["metadata"]["uid"] for p in site.owned("Pod")}
    good = copy.deepcopy(site.pool()["spec"])
    site.change(**spec)
    await site.passes(4)
    word, found, message = site.condition("SpecAccepted")
    assert (word, found) == ("False", reason)
    assert says in message
    assert {p["metadata"]["uid"] for p in site.owned("Pod")} == before
    await site.settle("other")
    site.pool()["spec"] = good
    site.pool()["metadata"]["generation"] += 1
    await site.settle()
    assert site.condition("SpecAccepted")[:2] == ("True", "Valid")


async def test_a_worker_that_dies_under_a_spec_of_a_newer_version_is_replaced() -> None:
    site = Site()
    await site.make("chat")
    await site.settle()
    site.change(flavour="new")
    site.api.objects.pop(PATHS.pods(site.owned("Pod")[0]["metadata"]["name"]))
    await site.passes(6)
    assert site.pool()["status"]["ready"] == "2/2"


@pytest.mark.parametrize("spec", [{"precision": None}, {"flavour": 1}, {"replicas": "x"}])
async def test_a_pool_whose_spec_cannot_be_read_can_be_deleted(spec: dict[str, Any]) -> None:
    site = Site()
    await site.make("chat")
    await site.settle()
    site.change(**spec)
    site.pool()["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for _ in range(40):
        if await site.loops["chat"].once() is None:
            return
    raise AssertionError("not released")


async def test_a_pass_that_crashes_for_an_unknown_reason_is_its_pools_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvroll_operator.pool_loop.AT_ONCE_SECONDS", 0.001)
    site = Site()
    await site.make("chat")

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a defect of ours")

    with monkeypatch.context() as patched:
        patched.setattr("kvroll_operator.pool_loop.transition", broken)
        loop = site.loops["chat"]
        task = asyncio.create_task(loop.run())
        async with asyncio.timeout(20):
            while site.condition("Degraded")[1] != "PassFailed":
                await asyncio.sleep(0.01)
        assert not task.done()
        assert "a defect of ours" in site.condition("Degraded")[2]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await site.settle()
    assert site.condition("Degraded")[1] == "None"


async def test_events_about_no_pool_start_nothing_that_fails() -> None:
    site = Site()
    pools = Pools(site.api, site.workers, PATHS, "", site.metrics)
    for name in ("", "no-such-pool", "chat"):
        pools.touch(name)
    await asyncio.sleep(0.05)
    assert pools.problem() == ""
    await pools.close()
