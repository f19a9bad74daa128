"""docs/rollout.md shows the edges and reasons that the code has."""

import re
from pathlib import Path

import pytest

from kvroll_operator.rollout.show.conditions import REASONS
from kvroll_operator.rollout.show.phases import EDGES, GroupPhase, is_edge

PAGE = Path(__file__).parents[2] / "docs" / "rollout.md"


def edges() -> str:
    rows = "".join(f"| {' '.join(before)} | {guard} | {' '.join(after)} |\n" for before, guard, after in EDGES)
    return f"| from | when | to |\n|---|---|---|\n{rows}"


def reasons() -> str:
    rows = "".join(f"| {kind} | {' '.join(words)} |\n" for kind, words in REASONS.items())
    return f"| condition | reasons |\n|---|---|\n{rows}"


@pytest.mark.parametrize(("block", "text"), [("edges", edges()), ("reasons", reasons())])
def test_the_page_shows_the_table(block: str, text: str) -> None:
    page = PAGE.read_text()
    shown = page.partition(f"<!-- {block}")[2].partition("-->\n")[2].partition(f"<!-- /{block} -->")[0]
    assert shown == text, f"paste this between the {block} marks of docs/rollout.md:\n{text}"


def test_every_phase_has_an_edge_in_and_a_way_out() -> None:
    entered = {phase for _, _, after in EDGES for phase in after}
    left = {phase for before, _, _ in EDGES for phase in before}
    assert set(GroupPhase) == entered == left


def test_the_table_does_not_allow_everything() -> None:
    unseen = [
        (GroupPhase.STABLE, (GroupPhase.WARMING, GroupPhase.GATING, GroupPhase.ADMITTING, GroupPhase.SEALED)),
        (GroupPhase.UPDATED, (GroupPhase.WARMING, GroupPhase.GATING, GroupPhase.ADMITTING, GroupPhase.SEALED)),
    ]
    assert not [(before, after) for before, afters in unseen for after in afters if is_edge(before, after)]


def test_the_invariants_name_tests_that_are_there() -> None:
    here = Path(__file__).parent
    code = "".join(path.read_text() for path in here.glob("*.py"))
    page = (PAGE.parent / "rollout-invariants.md").read_text()
    files = set(re.findall(r"`((?:test|simulated|random)_\w+\.py)`", page))
    functions = set(re.findall(r"`((?:test|_check)_\w+)`", page))
    assert len(functions) > 15
    assert sorted(name for name in files if not (here / name).is_file()) == []
    assert sorted(name for name in functions if f"def {name}(" not in code) == []
