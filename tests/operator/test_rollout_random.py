"""A thousand random sequences with every fault that the simulated cluster knows; tests/faults/test_rollout.py plays more."""

import pytest

from tests.operator.random_rollout import ACTIONS, play

SEEDS_EACH = 25


def check(first: int, count: int) -> None:
    for seed in range(first, first + count):
        found = play(seed)
        assert not found.violation, f"seed {seed}: {found.violation} after {found.done}"
        assert found.is_converged, f"seed {seed} does not settle after {found.done}"
        assert not found.edges, f"seed {seed}: steps that the table of edges does not have: {dict(found.edges)}"


@pytest.mark.parametrize("seed", [5154, 5163, 5248, 2000322, 5000534, 5000699, 14572, 17409])
def test_sequences_that_were_wrong_once(seed: int) -> None:
    """A second WorkerDrain beside one that was being deleted; groups that another plan had brought through; one
    whose worker had sealed itself before its turn; one drained first whose turn was dated anew while its new worker had sessions;
    one whose missing worker was already starting when its turn began."""
    check(seed, 1)


def test_some_sequences() -> None:
    check(1_000_000, 15)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(2_000_000, 2_001_000, SEEDS_EACH))
def test_a_thousand_sequences(first: int) -> None:
    check(first, SEEDS_EACH)


def test_the_sequences_have_every_fault() -> None:
    assert {
        "refuse",
        "hang",
        "lose node",
        "strip",
        "relabel",
        "unprotect",
        "scribble",
        "cancel",
        "autoscale",
    } <= ACTIONS.keys()
