"""What the gate's bench expects of each format, asks twice of nobody, and says of what it saw."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gate as bench

from kvroll_core.gate import Answer, Ask, GateVerdict, TrialPolicy
from kvroll_worker.evaluate.metrics import NotComparableError
from tests.core.gate_answers import FakeModel

TABLE = json.loads((Path(bench.__file__).parents[1] / bench.QUALITY).read_text())["quality"]


@dataclass
class FakeArm:
    model: FakeModel = field(default_factory=FakeModel)
    broken: bool = False
    asked: Counter[Ask] = field(default_factory=Counter)

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        if self.broken:
            raise NotComparableError("numbers that are not finite")
        self.asked.update(asks)
        return [self.model.answer(ask) for ask in asks]


def cached(arm: FakeArm) -> bench.CachedArm:
    return bench.CachedArm(arm)


def test_the_measured_table_decides_what_is_expected() -> None:
    passes = {case for case in bench.cases() if bench.expected(case, TABLE) is GateVerdict.PASS}
    assert {("bf16", "int8"), ("int8", "bf16"), ("bf16", "fp32")} <= passes
    assert not passes & {
        ("bf16", "fp8_e4m3"),
        ("bf16", "mxfp8"),
        ("int4", "bf16"),
        ("mxfp4", "bf16"),
        ("fp8_e4m3", "bf16"),
    }


def test_nobody_is_asked_the_same_twice_over_several_trials() -> None:
    base, control = FakeArm(), FakeArm()
    arms = bench.Arms(cached(base), cached(control))
    for seed in (1, 2):
        found = arms.judge(cached(FakeArm(FakeModel(0.004, seed=seed))), TrialPolicy(needle_words=(60,)), seed)
        assert found.verdict is GateVerdict.PASS
        assert bench.figures(found)["top1_agreement"] > 0.98
        assert bench.figures(found)["needle_recall_control"] == 1.0
    texts = [ask for ask in base.asked if ask.prompt is None]
    assert 44 <= len(texts) <= 48
    assert set(base.asked.values()) == {1}
    assert len(control.asked) < len(base.asked)


def test_an_engine_whose_numbers_are_none_is_rejected() -> None:
    arms = bench.Arms(cached(FakeArm()), cached(FakeArm()))
    assert arms.judge(cached(FakeArm(broken=True)), TrialPolicy(), 0).verdict is GateVerdict.FAIL
