"""The corpus of metric pages: as many, as right and as silent without evidence as the bench promises, and told from each other."""

import pytest
import wall_pages

from kvroll_bench.wall_pages import CASES, Case, looked


@pytest.fixture(scope="module")
def report() -> dict[str, object]:
    return wall_pages.report()


@pytest.mark.slow
def test_the_corpus_is_told_right(report: dict[str, object]) -> None:
    assert wall_pages.faults(report) == []
    assert report["advice_without_evidence"] == 0


@pytest.mark.parametrize("engine", ["vLLM", "SGLang", "TensorRT-LLM", "llama.cpp"])
def test_every_engine_has_a_page_of_every_kind(engine: str) -> None:
    walls = {wall for case in CASES if case.engine == engine for wall in case.walls}
    assert walls >= {"Bandwidth", "Capacity", "Compute", "Host", "Idle", "Unknown"}
    assert any(case.queues for case in CASES if case.engine == engine)


def test_a_wrong_page_is_a_fault(report: dict[str, object]) -> None:
    wrong = {
        **report,
        "correct": 0.9,
        "looked_at": [{"page": "p", "found": ["Idle"], "expected": ["Both"], "right": False}],
    }
    assert wall_pages.faults(wrong) == ["p: ['Idle'], expected ['Both']"]
    assert wall_pages.faults({**report, "advice_without_evidence": 1}) == ["advice without evidence"]


@pytest.mark.parametrize("case", [c for c in CASES if "Unknown" in c.walls], ids=lambda c: c.name)
def test_what_is_unknown_names_one_flag_for_each_figure_and_advises_nothing(case: Case) -> None:
    for one in looked(case).judged:
        if one.verdict.wall == "Unknown":
            assert one.advice == ()
            assert one.verdict.missing
            assert all("--" in m.bring for m in one.verdict.missing)


@pytest.mark.parametrize("case", [c for c in CASES if c.told.shape], ids=lambda c: c.name)
def test_advice_names_what_the_engine_has_and_never_ours(case: Case) -> None:
    for one in looked(case).judged:
        for advice in one.advice:
            if advice.lever in ("kvCache", "weights") and advice.effect:
                switch = one.engine.switch(advice.lever, advice.to)
                assert switch is not None
                assert advice.flag == switch.flag
            assert "kivi" not in advice.to


def test_a_cache_in_fp8_is_not_told_to_be_in_fp8() -> None:
    [one] = looked(next(c for c in CASES if c.name == "vllm-fp8-already")).judged
    assert one.load
    assert one.load.session_bytes == pytest.approx(7000 * 65536, rel=0.01)
    assert "kvCache" not in [a.lever for a in one.advice]
