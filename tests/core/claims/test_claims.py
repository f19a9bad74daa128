"""Every claim is computed, measured or answered with a reason; and what is computed is what is claimed."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvroll_core.budget import ModelShape
from tests.core.claims import formulas as f
from tests.core.claims.claim import Claim, Figure
from tests.core.claims.table import CLAIMS

ROOT = Path(__file__).parents[3]
FIGURES = [(claim, figure) for claim in CLAIMS for figure in claim.figures]
MEASURED = [claim for claim in CLAIMS if claim.bench]


@pytest.mark.parametrize(("claim", "figure"), FIGURES, ids=[f"{c.id}-{i.name}" for c, i in FIGURES])
def test_what_is_computed_is_what_is_claimed(claim: Claim, figure: Figure) -> None:
    found = figure.compute()
    assert figure.holds(found), f"{claim.claim}: {figure.name} is {found}, claimed {figure.claimed}"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_no_claim_is_left_without_an_answer(claim: Claim) -> None:
    assert claim.figures or claim.bench or claim.not_reproduced
    assert claim.source


def test_ids_are_unique() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim.id)
def test_a_bench_that_is_pointed_to_is_there(claim: Claim) -> None:
    assert claim.bench
    written_by = ROOT / claim.bench.script
    script = written_by.read_text()
    assert claim.bench.result in script
    for key in claim.bench.keys:
        case, _, figure = key.partition(".")
        assert f'f"{case.split("_")[0]}_{{' in script
        assert f'"{figure}":' in script
    result = ROOT / claim.bench.result
    # A result that is older than its script is another version's, with that version's keys.
    if result.exists() and result.stat().st_mtime >= written_by.stat().st_mtime:
        for key in claim.bench.keys:
            assert value(json.loads(result.read_text()), key) > 0


def value(document: dict[str, Any], key: str) -> float:
    found: Any = document
    for part in key.split("."):
        found = found[part]
    return float(found)


def test_the_remarks_figures() -> None:
    llama_8b = ModelShape(32, 4096, 32, 8, 128, 14336, 128256, False, 131072)
    sizes = [round(f.kv_bytes(s, "fp8_e4m3", 100_000) / 1e9, 1) for s in (llama_8b, f.LLAMA_70B)]
    assert sizes == [6.8, 16.9]
    assert f.kv_bytes(f.LLAMA_70B, "bf16", 4096, 128) / 1e9 == pytest.approx(171.8, abs=0.05)
    assert f.batch_ratio(499, 128) == pytest.approx(2.3, abs=0.05)
    assert f.weights_bytes(f.LLAMA_70B) / 2**30 == pytest.approx(131.4, abs=0.05)


@pytest.mark.parametrize(
    ("figure", "found", "holds"),
    [
        (Figure("", "", 2.0, float, within=0.1), 2.1, True),
        (Figure("", "", 2.0, float, within=0.1), 2.3, False),
        (Figure("", "", 2.0, float), 2.0001, False),
        (Figure("", "", 2.0, float, at_least=True), 1.9, False),
        (Figure("", "", 2.0, float, at_most=True), 2.1, False),
    ],
)
def test_a_figure_can_fail(figure: Figure, found: float, holds: bool) -> None:
    assert figure.holds(found) is holds
