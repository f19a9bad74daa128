"""A baseline that is not deterministic: what its control says of a candidate that is no worse, and of one that is."""

from collections import Counter

import pytest

from kvroll_core.gate import Bar, GateVerdict, Trial, TrialPolicy, bundled
from kvroll_core.gate.estimate import Pair
from kvroll_core.gate.noise import noise_of
from kvroll_core.gate.question import Question, QuestionKind
from tests.core.gate_answers import FakeModel, judged

pytestmark = pytest.mark.slow

DATA = bundled()
NOISE = 0.01


def words(candidate: float, bar: str, trials: int, noise: float = NOISE) -> Counter[str]:
    """Verdicts on a candidate of that many flips where the baseline itself has `noise`."""
    found: Counter[str] = Counter()
    for seed in range(trials):
        arms = FakeModel(candidate, seed=2 * seed + 1), FakeModel(noise, seed=2 * seed + 2)
        found[judged(Trial(DATA, [Bar.parse(bar)], TrialPolicy(), seed), *arms).verdict.value] += 1
    return found


@pytest.mark.parametrize("bar", ["top1Agreement>=0.993", "top1Agreement>=0.995"])
def test_a_candidate_that_is_the_baseline_again_hardly_ever_fails(bar: str) -> None:
    """One in four did while Fail asked only whether the control's few prompts met the bar."""
    assert words(NOISE, bar, 40)["Fail"] <= 4


def test_a_candidate_that_is_worse_than_the_noise_still_fails() -> None:
    assert words(0.1, "top1Agreement>=0.97", 6) == {"Fail": 6}
    assert words(0.05, "top1Agreement>=0.98", 6)["Fail"] >= 5


def test_a_baseline_without_noise_excuses_nothing() -> None:
    found = judged(Trial(DATA, [Bar.parse("top1Agreement>=0.97")]), FakeModel(0.3, seed=1))
    assert (found.verdict, found.samples) == (GateVerdict.FAIL, 8)


def pairs(*agreements: float) -> list[Pair]:
    return [
        Pair(Question(str(at), QuestionKind.TEXT, DATA.texts[0]), one, kls=(0.0,) * 50, loss_change=0.0)
        for at, one in enumerate(agreements)
    ]


def test_prompts_that_all_agree_do_not_make_the_control_certain() -> None:
    bar = Bar.parse("top1Agreement>=0.97")
    few, many = (noise_of(bar, pairs(*[0.9, 0.92] * 2 * count), pairs(*[1.0] * count), 0.05) for count in (2, 40))
    assert few is not None
    assert many is not None
    assert few.value == many.value == 1.0
    assert 0.9 < few.worst < many.worst < 1.0
    assert few.explained > many.explained


def test_without_a_control_nothing_is_excused_and_one_prompt_has_its_value_alone() -> None:
    bar = Bar.parse("top1Agreement>=0.97")
    assert noise_of(bar, pairs(0.9, 0.9), [], 0.05) is None
    one = noise_of(bar, pairs(0.9, 0.9), pairs(0.99), 0.05)
    assert one is not None
    assert (one.value, one.worst, one.best, one.explained) == (0.99, 0.99, 0.99, 0.0)


def test_a_ceiling_has_its_worse_side_above() -> None:
    found = noise_of(
        Bar.parse("pplRatio<=1.01"),
        pairs(1.0, 1.0),
        [Pair(p.question, 1.0, (0.0,), change) for p, change in zip(pairs(1, 1, 1), (0.0, 0.02, -0.02), strict=True)],
        0.05,
    )
    assert found is not None
    assert found.best < found.value < found.worst
