"""The operator's series: all words of an enum are there from the start, and what is no longer so does not stay."""

from typing import get_args

import pytest

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate_status import GateMetricStatus, GateStatus
from kvroll_operator.api.status import PoolStatus, RolloutSessions, RolloutStatus
from kvroll_operator.cluster.client import ApiProblem
from kvroll_operator.metrics import WAYS, Metrics
from kvroll_operator.rollout.show.phases import RolloutPhase
from kvroll_operator.rollout.transition import Effect


def gated(*names: str) -> PoolStatus:
    metrics = [GateMetricStatus(name=name, value=0.5, verdict="Pass") for name in names]
    return PoolStatus(gate=GateStatus(verdict="Pass", metrics=metrics))


def test_a_metric_that_the_gate_measures_no_more_is_not_shown() -> None:
    shown = Metrics()

    def value(name: str) -> float | None:
        return shown.registry.get_sample_value("kvroll_gate_value", {"pool": "p", "metric": name})

    shown.show("p", gated("top1", "needles"))
    assert (value("top1"), value("needles")) == (0.5, 0.5)
    shown.show("p", gated("needles"))
    assert (value("top1"), value("needles")) == (None, 0.5)
    shown.forget("p")
    assert value("needles") is None
    shown.show("p", gated("top1"))
    assert (value("top1"), value("needles")) == (0.5, None)


@pytest.mark.parametrize("phase", [p for p in RolloutPhase if p])
def test_every_phase_of_a_rollout_has_a_series(phase: RolloutPhase) -> None:
    shown = Metrics()
    shown.show("p", PoolStatus(rollout=RolloutStatus(phase=phase)))
    found = {
        p: shown.registry.get_sample_value("kvroll_rollout_phase", {"pool": "p", "phase": p}) for p in RolloutPhase
    }
    assert found == {p: (None if not p else float(p is phase)) for p in RolloutPhase}


def test_every_way_of_a_session_is_shown() -> None:
    counted = {name for name in RolloutSessions.model_fields if not name.endswith("_bytes")}
    assert counted - set(WAYS) == {"moved", "tokens_replayed"}


def test_counters_are_there_before_their_first_event() -> None:
    shown = Metrics()
    read = shown.registry.get_sample_value
    for problem in ("None", *ApiProblem):
        assert read("kvroll_operator_api_requests_total", {"method": "GET", "problem": problem}) == 0
    for kind in get_args(Effect):
        assert read("kvroll_operator_effects_total", {"kind": kind.__name__}) == 0
    shown.show("p", PoolStatus())
    for verdict in GateVerdict:
        assert read("kvroll_gate_runs_total", {"pool": "p", "verdict": verdict}) == 0
