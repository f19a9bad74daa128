"""The wall in a pool's status: judged by what its workers report between two looks, shown, and never read to decide."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_core.wall import Basis, Sample, Wall
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.api.wall import WallStatus, wall_status
from kvroll_operator.metrics import Metrics
from kvroll_operator.rollout.facts.desired import Desired
from kvroll_operator.rollout.facts.observed import Pod, Report
from kvroll_operator.rollout.facts.wall import EVERY_SECONDS, WINDOW_SECONDS, Watch
from kvroll_operator.rollout.transition import transition
from tests.operator.simulated_cluster import Cluster
from tests.operator.simulated_facts import content, facts
from tests.operator.simulated_wall import figures


def worker(name: str, sample: Sample | None, *, admitted: bool = True, sessions: int = 2) -> Pod:
    """A Pod whose worker reports that."""
    report = Report(f"{name}/1", name, True, admitted, False, facts=facts(content(), sessions), wall=sample)
    return Pod(name, name, "1", "a", 0, 0, 0, 0.0, admitted=admitted, phase="Running", report=report)


def watched(*, workers: int = 2, waits: bool = False, sessions: int = 2, read_share: float = 0.8) -> Watch:
    """A watch after two windows of equal workers."""
    watch = Watch()
    for now in (1000.0, 1015.0, 1031.0, 1046.0, 1062.0):
        sample = figures(now, sessions, waits=waits, read_share=read_share)
        watch = watch.look([worker(f"w{n}", sample) for n in range(workers)], now)
    return watch


@pytest.mark.parametrize(
    ("waits", "read_share", "wall"),
    [
        (False, 0.8, Wall.BANDWIDTH),
        (True, 0.8, Wall.BOTH),
        (True, 0.2, Wall.CAPACITY),
        (False, 0.2, Wall.HOST),
    ],
)
def test_the_pool_has_the_wall_of_its_workers(waits: bool, read_share: float, wall: Wall) -> None:
    status = wall_status(watched(waits=waits, read_share=read_share).judged)
    assert (status.verdict, status.basis) == (wall, Basis.MODELLED)
    figure = {f.name: f for f in status.evidence}
    assert figure["bandwidth_used"].value == pytest.approx(read_share)
    assert figure["waiting_for_room"].over is waits
    assert "prefix_hit_rate" not in figure, "nobody tells it"


def test_advice_has_the_effect_on_sessions_and_step() -> None:
    first, *_, last = wall_status(watched(waits=True).judged).advice
    assert (first.lever, first.to) == ("kvCache", "int8")
    assert first.sessions_ratio == pytest.approx(256 / 136, rel=0.01)
    assert first.step_ratio is not None
    assert (last.lever, last.to) == ("replica", "3 replicas")


def test_nothing_is_known_before_a_window_has_ended() -> None:
    watch = Watch().look([worker("w", figures(0.0, 2))], 0.0)
    assert wall_status(watch.judged) == WallStatus()
    assert WallStatus().verdict == Wall.UNKNOWN
    assert watch.look([worker("w", figures(29.0, 2))], 29.0).judged is None
    assert watch.look([worker("w", figures(31.0, 2))], 31.0).judged is not None


def test_a_watch_that_is_forgotten_costs_one_window() -> None:
    before = watched()
    again = Watch()
    for now in (1070.0, 1101.0):
        again = again.look([worker(f"w{n}", figures(now, 2)) for n in range(2)], now)
    assert before.judged is not None
    assert again.judged is not None
    assert again.judged.verdict.wall is before.judged.verdict.wall


def test_workers_that_do_not_serve_or_tell_are_left_out() -> None:
    watch = Watch()
    for now in (0.0, 31.0):
        silent = replace(worker("silent", None), report=None)
        closed = worker("closed", figures(now, 2, waits=True), admitted=False)
        watch = watch.look([worker("w", figures(now, 2)), worker("old", None), silent, closed], now)
    assert watch.judged is not None
    assert (watch.judged.verdict.wall, watch.judged.counters.running) == (Wall.BANDWIDTH, 2)
    assert watch.look([worker("w", None)], 32.0) == Watch(), "whoever tells nothing is unknown, not as before"


def test_a_worker_that_came_within_the_window_or_whose_counters_went_back_is_left_out() -> None:
    old, new = worker("old", figures(100.0, 2)), worker("new", figures(130.0, 4))
    watch = Watch().look([old], 0.0).look([worker("old", figures(131.0, 2)), new], 31.0)
    assert watch.judged is not None
    assert watch.judged.counters.running == 2
    back = replace(figures(170.0, 2), series=figures(5.0, 2).series)
    assert watch.look([worker("old", back)], 62.0).judged is None


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 40), min_size=1, max_size=60))
def test_verdicts_are_half_a_minute_apart_and_windows_small(pauses: list[float]) -> None:
    watch, now, judged_at = Watch(), 1000.0, []
    for pause in pauses:
        now += pause
        before = watch.judged
        watch = watch.look([worker("w", figures(now, 2))], now)
        if watch.judged is not before:
            judged_at.append(now)
            assert watch.judged is not None
            assert watch.judged.verdict.wall is Wall.BANDWIDTH
        assert all(len(found) <= WINDOW_SECONDS / EVERY_SECONDS + 2 for found in watch.samples.values())
    assert all(later - earlier >= WINDOW_SECONDS for earlier, later in itertools.pairwise(judged_at))


def test_nothing_is_decided_by_it() -> None:
    cluster = Cluster(Desired("p", "u", content(), replicas=3), devices=4, seed=1)
    watch = Watch()
    seen: set[str] = set()
    for step in range(12):
        if step == 6:
            cluster.desired = replace(cluster.desired, content=content(kv_cache="int8"))
        observed = cluster.observe()
        watch = watch.look(observed.pods, cluster.now)
        with_wall = transition(cluster.desired, replace(observed, wall=watch.judged))
        without = transition(cluster.desired, observed)
        assert with_wall[1] == without[1]
        assert with_wall[0] == without[0].model_copy(update={"wall": with_wall[0].wall})
        assert without[0].wall == WallStatus()
        seen.add(with_wall[0].wall.verdict)
        cluster.step()
    assert seen == {Wall.UNKNOWN, Wall.BANDWIDTH}


def test_the_metric_names_one_wall() -> None:
    metrics = Metrics()
    metrics.show("p", PoolStatus(wall=wall_status(watched().judged)))
    shown = {w: metrics.registry.get_sample_value("kvroll_pool_wall", {"pool": "p", "wall": w}) for w in Wall}
    assert shown == {w: float(w is Wall.BANDWIDTH) for w in Wall}
    metrics.forget("p")
    assert metrics.registry.get_sample_value("kvroll_pool_wall", {"pool": "p", "wall": "Bandwidth"}) is None
