"""The length of sessions follows the machine, and stays within what a worker can hold."""

import pytest

from kvroll_cli.demo.load.pace import Fixed, Lasting
from kvroll_cli.demo.story import KV_MEMORY, LOAD, has_groups_to_drain
from tests.cli.recorded import pool

PACE = Lasting(seconds=25, fewest=140, most=500)


@pytest.mark.parametrize("rate", [8.0, 12.0, 20.0])
def test_a_session_lasts_about_as_long_on_every_machine(rate: float) -> None:
    lengths = [PACE.tokens(n, is_first=False, tokens_per_second=rate) for n in range(50)]
    assert sum(lengths) / len(lengths) / rate == pytest.approx(25, rel=0.05)


def test_a_slow_machine_still_gets_sessions_worth_a_move_and_a_fast_one_none_that_fill_the_cache() -> None:
    slow = [PACE.tokens(n, is_first=False, tokens_per_second=0.5) for n in range(50)]
    fast = [PACE.tokens(n, is_first=False, tokens_per_second=5000.0) for n in range(50)]
    assert min(slow) >= 140 * 0.5
    assert max(fast) <= 500 * 1.5


def test_sessions_that_begin_together_do_not_end_together() -> None:
    lengths = [PACE.tokens(n, is_first=True, tokens_per_second=None) for n in range(20)]
    assert len(set(lengths)) >= 5
    assert max(lengths) / min(lengths) >= 2


def test_every_session_of_the_demo_fits_one_worker() -> None:
    """While the other groups change, one worker may hold all of them: bf16 KV of the demo's model, 30 layers, 3 heads of 64."""
    assert isinstance(LOAD.pace, Lasting)
    bytes_per_token = 30 * 2 * 3 * 64 * 2
    prompt_tokens = 40
    longest = LOAD.sessions * (LOAD.pace.most * 1.0 + prompt_tokens)
    assert KV_MEMORY == "384Mi"
    assert longest * bytes_per_token <= 384 * 2**20


def test_fixed_sizes_take_turns() -> None:
    pace = Fixed((5, 7), 3)
    assert [pace.tokens(n, is_first=True, tokens_per_second=None) for n in range(3)] == [5, 7, 5]
    assert pace.tokens(9, is_first=False, tokens_per_second=1.0) == 3


def test_sessions_begin_until_the_last_group_drains() -> None:
    found = pool()  # group 0 is through, 1 drains, 2 has not begun
    assert has_groups_to_drain(found)
    found["status"]["groups"][2]["phase"] = "Warming"
    assert has_groups_to_drain(found)
    found["status"]["groups"][2]["phase"] = "Draining"
    assert not has_groups_to_drain(found)
    for group in found["status"]["groups"]:  # patched: the operator has looked, and has no plan yet
        group |= {"phase": "Stable", "revision": "bbbb2222", "targetRevision": "bbbb2222"}
    assert has_groups_to_drain(found)
