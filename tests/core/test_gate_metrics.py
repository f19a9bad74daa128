"""Distances of distributions that are known in part, datasets line by line, and the page."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.gate import Bar, DatasetError, Evidence, Metric, Score, ScoredToken, Text, Trial, bundled, parse
from kvroll_core.gate.distance import FLOOR_NATS, NotComparableError, agree, divergence, paired
from kvroll_core.gate.estimate import Pair, standard_error, value_of
from kvroll_core.gate.needles import DEPTHS, tell
from kvroll_core.gate.question import Question, QuestionKind
from kvroll_core.gate.report import markdown
from tests.core.gate_answers import FakeModel, judged

Masses = st.lists(st.floats(1e-6, 1), min_size=8, max_size=8)
QUESTION = Question("text-0", QuestionKind.TEXT, Text("x"))


def seen(masses: list[float], own: int, top: int) -> ScoredToken:
    logs = {token: math.log(mass / sum(masses)) for token, mass in enumerate(masses)}
    likeliest = sorted(logs.items(), key=lambda pair: -pair[1])[:top]
    return ScoredToken(own, logs[own], tuple(likeliest))


@given(Masses, Masses, st.integers(0, 7), st.integers(1, 8))
def test_the_divergence_of_parts_is_a_lower_bound_and_of_all_is_it(
    p: list[float], q: list[float], own: int, top: int
) -> None:
    true = sum(a / sum(p) * math.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True))
    found = divergence(seen(p, own, top), seen(q, own, top))
    assert 0 <= found <= true + 1e-6
    if top == 8:
        assert found == pytest.approx(true, abs=1e-6)
    assert divergence(seen(p, own, top), seen(p, own, top)) == pytest.approx(0, abs=1e-9)


def test_the_divergence_is_bounded() -> None:
    sure, other = ScoredToken("a", 0.0, (("a", 0.0),)), ScoredToken("a", -900.0, (("b", 0.0),))
    assert divergence(sure, other) == FLOOR_NATS


def test_tokens_must_be_the_same_and_have_their_likeliest() -> None:
    one, two = ScoredToken("a", -1.0), ScoredToken("b", -1.0)
    with pytest.raises(NotComparableError, match="part at 0"):
        paired(Score((one,), True), Score((two,), True))
    with pytest.raises(NotComparableError, match="found none"):
        agree(one, one)


def test_the_tail_is_what_a_hundredth_exceeds() -> None:
    pairs = [Pair(QUESTION, kls=tuple(float(at) for at in range(100 * n, 100 * n + 100))) for n in range(4)]
    assert value_of(Metric.KL_P99, pairs) == 395.0, "4 of 400 are above it"
    assert value_of(Metric.KL_MEAN, pairs) == 199.5


def test_a_long_text_weighs_what_a_short_one_does() -> None:
    pairs = [Pair(QUESTION, agreement=1.0, kls=(0.0,) * 99, loss_change=0.0), Pair(QUESTION, 0.5, (1.0,), 0.2)]
    assert value_of(Metric.TOP1_AGREEMENT, pairs) == 0.75
    assert value_of(Metric.KL_MEAN, pairs) == 0.5
    assert value_of(Metric.PPL_RATIO, pairs) == pytest.approx(math.exp(0.1))
    assert standard_error(Metric.TOP1_AGREEMENT, pairs) == pytest.approx(0.25)
    assert math.isnan(value_of(Metric.KL_MEAN, []))


def test_ratios_are_to_what_the_baseline_gets_right() -> None:
    pairs = [
        Pair(QUESTION, base_hits=(True, True), hits=(True, False)),
        Pair(QUESTION, base_hits=(False, True), hits=(False, True)),
    ]
    assert value_of(Metric.NEEDLE_RECALL, pairs) == pytest.approx(2 / 3)
    assert math.isnan(value_of(Metric.TASK_SCORE, [replace(pairs[0], base_hits=(False, False))]))


def test_the_bundled_dataset_is_what_its_docstring_says() -> None:
    data = bundled()
    assert (len(data.texts), len(data.tasks)) == (48, 12)
    assert len({one.text for one in data.texts}) == 48
    assert all(len(one.text.split()) >= 25 or "\n" in one.text or "{" in one.text for one in data.texts)
    assert len(data.digest) == 64


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        "{}",
        '{"text": ""}',
        '{"text": 3}',
        '{"text": "a", "more": 1}',
        '{"prompt": "a"}',
        '{"prompt": "a", "expected": ""}',
        '{"prompt": "a", "choices": ["b"], "answer": 0}',
        '{"prompt": "a", "choices": ["b", "b"], "answer": 0}',
        '{"prompt": "a", "choices": ["b", "c"], "answer": 2}',
        '{"prompt": "a", "choices": ["b", "c"], "answer": true}',
    ],
)
def test_a_bad_line_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(DatasetError, match="line 3: expected"):
        parse(f'{{"text": "good"}}\n\n{line}\n')


def test_lines_end_where_json_lines_end() -> None:
    data = parse('{"text": "one\u2028line"}\r\n{"prompt": "a", "expected": " b"}\n')
    assert (len(data.texts), len(data.tasks)) == (1, 1)
    with pytest.raises(DatasetError, match="found none"):
        parse("\n")


def test_a_tale_tells_each_fact_once_at_its_depth() -> None:
    for words in (60, 400):
        tale = tell(3, words)
        assert [one.depth for one in sorted(tale.needles, key=lambda one: one.depth)] == list(DEPTHS)
        assert len(tale.told.split()) >= words
        for needle in tale.needles:
            assert tale.told.count(f"{needle.question}{needle.answer}.") == 1
            before = len(tale.told[: tale.told.index(needle.question)].split())
            assert abs(before - needle.depth * words) < 40


def test_the_page_says_what_was_found() -> None:
    found = judged(
        Trial(bundled(), [Bar.parse("top1Agreement>=0.97"), Bar.parse("needleRecall>=0.95")]), FakeModel(0.2, seed=1)
    )
    page = markdown(found.named("old | one", "new"))
    assert page.startswith("# Gate: Fail\n\ntop1Agreement >= 0.97: 0.")
    assert "old \\| one" in page
    assert found.named("old | one", "new").digest in page
    assert "0.97 at least" in page
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    assert "quality unmeasured" in markdown(Evidence.not_run("quality unmeasured"))
