"""The trial: what it asks, in which order, when it ends and with which word."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_core.gate import (
    Answer,
    Arm,
    Bar,
    Evidence,
    GateError,
    GateVerdict,
    Score,
    ScoredToken,
    Trial,
    TrialPolicy,
    bundled,
    parse,
)
from tests.core.gate_answers import FakeModel, judged

TOP1 = Bar.parse("top1Agreement>=0.97")
NEEDLES = Bar.parse("needleRecall>=0.95")
DATA = bundled()


def verdicts(candidate: FakeModel, *bars: Bar, trials: int = 6, policy: TrialPolicy | None = None) -> Counter[str]:
    found = (
        judged(Trial(DATA, bars or [TOP1], policy, seed), replace(candidate, seed=seed + 1)) for seed in range(trials)
    )
    return Counter(one.verdict.value for one in found)


@pytest.mark.parametrize(
    ("flips", "word"), [(0.0, "Pass"), (0.005, "Pass"), (0.0143, "Pass"), (0.07, "Fail"), (0.3, "Fail")]
)
def test_formats_of_known_quality_get_their_word(flips: float, word: str) -> None:
    """0.0143 is int8, 0.07 mxfp8 in the measured table."""
    assert verdicts(FakeModel(flips)) == {word: 6}


def test_a_format_just_below_the_bar_fails() -> None:
    """fp8_e4m3, 0.957 of 0.97: two standard errors of the bundled dataset."""
    assert verdicts(FakeModel(0.043), trials=12)["Fail"] >= 11


@pytest.mark.slow
def test_a_candidate_at_its_bars_fails_by_an_early_look_at_most_at_its_rate() -> None:
    """Over orders of one fixed set of answers whose exact figure meets the bar, and of one that misses it by a hair."""
    exact = judged(Trial(DATA, [Bar.parse("top1Agreement>=0")], TrialPolicy(min_samples=48)), FakeModel(0.04, seed=3))
    value = exact.metrics[0].value
    assert value is not None
    for bar, wrong in ((value - 1e-4, GateVerdict.FAIL), (value + 1e-4, GateVerdict.PASS)):
        found = [
            judged(Trial(DATA, [Bar(TOP1.metric, min=bar)], TrialPolicy(), seed), FakeModel(0.04, seed=3)).verdict
            for seed in range(100)
        ]
        assert sum(one is wrong for one in found) <= 100 * 0.05 + 6.5


def test_a_bad_candidate_costs_few_prompts_and_a_good_one_no_more_than_there_are() -> None:
    assert judged(Trial(DATA, [TOP1]), FakeModel(0.3, seed=1)).samples == 8
    assert judged(Trial(DATA, [TOP1]), FakeModel(0.0143, seed=1)).samples <= 48


def test_one_bar_missed_fails_all_and_its_reason_names_it() -> None:
    found = judged(Trial(DATA, [TOP1, NEEDLES]), FakeModel(0.0, misses=0.6, seed=1))
    assert found.verdict is GateVerdict.FAIL
    assert found.reason.startswith("needleRecall >= 0.95: ")
    assert {one.bar.metric for one in found.metrics if one.bar} == {TOP1.metric, NEEDLES.metric}
    assert sum(one.asked for one in found.needles) % 5 == 0


def test_every_metric_has_a_bar_and_they_pass_together() -> None:
    spelt = (
        "top1Agreement>=0.97",
        "klMean<=0.1",
        "klP99<=0.2",
        "pplRatio<=1.01",
        "needleRecall>=0.95",
        "taskScore>=0.9",
    )
    found = judged(Trial(DATA, [Bar.parse(one) for one in spelt]), FakeModel(0.004, seed=2))
    assert found.verdict is GateVerdict.PASS
    assert len(found.metrics) == 6


def test_noise_of_the_baseline_makes_a_failure_inconclusive_and_a_pass_stays_one() -> None:
    noisy = FakeModel(0.2, seed=9)
    found = judged(Trial(DATA, [TOP1]), FakeModel(0.2, seed=1), noisy)
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert "the bar is within its noise" in found.reason
    assert judged(Trial(DATA, [TOP1]), FakeModel(0.0), noisy).verdict is GateVerdict.PASS


def test_too_few_prompts_are_inconclusive() -> None:
    found = judged(Trial(DATA, [TOP1], TrialPolicy(max_samples=12)), FakeModel(0.03, seed=1))
    assert found.verdict is GateVerdict.INCONCLUSIVE
    assert found.samples == 12
    assert "too near to tell" in found.reason


def test_a_sample_needs_more_than_the_bundled_prompts_to_pass() -> None:
    assert verdicts(FakeModel(0.0), policy=TrialPolicy(as_sample=True), trials=3) == {"Inconclusive": 3}
    many = parse("\n".join(f'{{"text": "{"word " * 30}{number}"}}' for number in range(300)))
    found = judged(Trial(many, [TOP1], TrialPolicy(as_sample=True)), FakeModel(0.005, seed=1))
    assert (found.verdict, found.as_sample) == (GateVerdict.PASS, True)
    assert found.samples < 250


def test_a_ratio_to_nothing_is_inconclusive() -> None:
    trial = Trial(DATA, [NEEDLES])
    while (batch := trial.ask()) is not None:
        trial.take(batch.id, [FakeModel(misses=1.0).answer(ask) for ask in batch.asks])
    assert trial.evidence().verdict is GateVerdict.INCONCLUSIVE
    assert "the baseline itself gets nothing right" in trial.evidence().reason


@pytest.mark.parametrize(
    ("arm", "word"), [(Arm.CANDIDATE, "Fail"), (Arm.BASELINE, "Inconclusive"), (Arm.CONTROL, "Inconclusive")]
)
def test_numbers_that_are_no_numbers_never_pass(arm: Arm, word: str) -> None:
    trial = Trial(DATA, [TOP1])
    while (batch := trial.ask()) is not None:
        answers = [FakeModel().answer(ask) for ask in batch.asks]
        if batch.arm is arm:
            answers[0] = Answer((Score((ScoredToken("a", float("nan")),), False),))
        trial.take(batch.id, answers)
    assert trial.evidence().verdict == word
    assert "not finite" in trial.evidence().reason


def test_other_tokens_cannot_be_compared() -> None:
    trial = Trial(DATA, [TOP1])
    while (batch := trial.ask()) is not None:
        answers = [FakeModel().answer(ask) for ask in batch.asks]
        if batch.arm is Arm.CANDIDATE:
            answers = [Answer((replace(one.scores[0], tokens=one.scores[0].tokens[1:]),)) for one in answers]
        trial.take(batch.id, answers)
    assert trial.evidence().verdict is GateVerdict.INCONCLUSIVE
    assert "one tokenizer" in trial.evidence().reason


def test_a_baseline_can_be_written_before_there_is_a_candidate() -> None:
    bars, candidate = [TOP1, NEEDLES], FakeModel(0.01, seed=5)
    first = Trial(DATA, bars, seed=4)
    kept = {}
    while (batch := first.ask({Arm.BASELINE, Arm.CONTROL})) is not None:
        assert batch.arm is not Arm.CANDIDATE
        kept[batch.id] = [Answer.from_json(FakeModel().answer(ask).to_json()) for ask in batch.asks]
        first.take(batch.id, kept[batch.id])
    later = Trial(DATA, bars, seed=4)
    for name, answers in kept.items():
        later.take(name, answers)
    assert not later.decided
    while (batch := later.ask()) is not None:
        assert batch.arm is Arm.CANDIDATE
        later.take(batch.id, [candidate.answer(ask) for ask in batch.asks])
    assert later.evidence() == judged(Trial(DATA, bars, seed=4), candidate)


@settings(deadline=None, max_examples=5)
@given(st.integers(0, 10_000))
def test_answers_may_come_in_any_order(seed: int) -> None:
    draw = random.Random(seed)
    trial, candidate = Trial(DATA, [TOP1, NEEDLES], seed=1), FakeModel(0.02, seed=3)
    owed = []
    while not trial.decided:
        owed += list(iter(trial.ask, None))
        assert owed
        batch = owed.pop(draw.randrange(len(owed)))
        model = candidate if batch.arm is Arm.CANDIDATE else FakeModel()
        trial.take(batch.id, [model.answer(ask) for ask in batch.asks])
    assert trial.evidence() == judged(Trial(DATA, [TOP1, NEEDLES], seed=1), candidate)


def test_a_seed_gives_an_order_and_haystacks_of_its_own() -> None:
    asked = set()
    for seed in (0, 0, 1, 2):
        batch = Trial(DATA, [NEEDLES], seed=seed).ask()
        assert batch is not None
        asked.add(batch.asks)
    assert len(asked) == 3


def test_what_cannot_be_judged_is_refused_at_once() -> None:
    texts = parse('{"text": "a few words"}')
    for bars, data, said in (
        ([], DATA, "at least one bar"),
        ([TOP1, TOP1], DATA, "one min for top1Agreement"),
        ([Bar.parse("taskScore>=1")], texts, "expected prompts of the kind task"),
    ):
        with pytest.raises(GateError, match=said):
            Trial(data, bars)
    trial = Trial(texts, [TOP1])
    with pytest.raises(GateError, match="a batch of this trial"):
        trial.take("text/9/baseline", [])
    with pytest.raises(GateError, match="1 answers to"):
        trial.take("text/0/baseline", [])
    with pytest.raises(GateError, match="waits for answers"):
        trial.evidence()
    trial.stop("out of time")
    assert trial.evidence().reason == "out of time"


@pytest.mark.parametrize("spelt", ["top1Agreement>0.9", "top2>=1", "klMean<=x", "klMean<=1e", ">=1", "klMean<=nan"])
def test_a_bar_that_is_misspelt_is_refused(spelt: str) -> None:
    with pytest.raises(GateError, match="expected"):
        Bar.parse(spelt)


def test_evidence_comes_back_whole_and_tells_when_it_was_changed() -> None:
    found = judged(Trial(DATA, [TOP1, NEEDLES]), FakeModel(0.01, seed=2)).named("old", "new")
    told = found.to_json()
    assert Evidence.from_json(told) == found
    with pytest.raises(GateError, match="it was changed"):
        Evidence.from_json({**told, "verdict": "Fail"})
    with pytest.raises(GateError, match="expected a gate's evidence"):
        Evidence.from_json({"verdict": "Pass"})
    assert Evidence.from_json(Evidence.not_run("no gate").to_json()).verdict is GateVerdict.NOT_RUN
