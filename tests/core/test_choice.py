"""Which way on a drained session takes."""

from dataclasses import replace

import pytest

from kvroll_core.choice import Costs, Facts, Policy, Target, choose
from kvroll_core.words import WayOn
from tests.doubles.model_double import descriptor_of

HERE = descriptor_of("bf16", "bf16")
SAME = Target("same", HERE, True, True, 2048)
OTHER_KV = Target("other-kv", descriptor_of("bf16", "int8"), False, True, 1024)
OTHER_WEIGHTS = Target("other-weights", descriptor_of("int8", "bf16"), False, True, 2048)
FACTS = Facts(num_tokens=1000, max_remaining_tokens=500, reproducible=False, same_revision_moves=0)
DEFAULT = Policy((WayOn.FINISH_SOON, WayOn.CONVERT, WayOn.EXACT, WayOn.REPLAY, WayOn.CHECKPOINT, WayOn.FINISH))
NO_HOP = Policy((WayOn.CONVERT, WayOn.REPLAY))
COSTS = Costs(step_seconds=0.05)


def chosen(facts: Facts, targets: list[Target], policy: Policy = DEFAULT) -> tuple[WayOn | None, str]:
    choice = choose(facts, HERE, targets, policy, COSTS)
    return choice.way, choice.target.name if choice.target else ""


@pytest.mark.parametrize(
    ("targets", "facts", "policy", "way", "target"),
    [
        ([SAME, OTHER_KV], FACTS, DEFAULT, WayOn.CONVERT, "other-kv"),
        ([OTHER_WEIGHTS, SAME], FACTS, DEFAULT, WayOn.EXACT, "same"),
        ([OTHER_WEIGHTS], FACTS, DEFAULT, WayOn.REPLAY, "other-weights"),
        ([], FACTS, DEFAULT, WayOn.FINISH, ""),
        ([replace(SAME, accepting=False)], FACTS, DEFAULT, WayOn.FINISH, ""),
        ([SAME], replace(FACTS, max_remaining_tokens=1), DEFAULT, WayOn.FINISH_SOON, ""),
        ([SAME, OTHER_WEIGHTS], replace(FACTS, same_revision_moves=1), DEFAULT, WayOn.REPLAY, "other-weights"),
        ([SAME], replace(FACTS, same_revision_moves=1), replace(DEFAULT, evacuation=True), WayOn.EXACT, "same"),
        ([OTHER_KV], replace(FACTS, reproducible=True), DEFAULT, WayOn.FINISH, ""),
        ([OTHER_WEIGHTS], FACTS, replace(DEFAULT, kv_across_weights=True), WayOn.CONVERT, "other-weights"),
        ([OTHER_KV], FACTS, Policy((WayOn.EXACT,)), None, ""),
        # Without Exact a roll does not move a session twice: not onto a worker that will be drained as well.
        ([SAME, OTHER_WEIGHTS], FACTS, NO_HOP, WayOn.REPLAY, "other-weights"),
        ([SAME, replace(OTHER_WEIGHTS, accepting=False)], FACTS, NO_HOP, None, ""),
        ([SAME], FACTS, NO_HOP, WayOn.CONVERT, "same"),
        ([SAME, OTHER_WEIGHTS], FACTS, replace(NO_HOP, evacuation=True), WayOn.CONVERT, "same"),
        ([SAME], FACTS, Policy((WayOn.EXACT, WayOn.DROP)), WayOn.EXACT, "same"),
        ([], FACTS, Policy((WayOn.EXACT, WayOn.DROP)), None, ""),
        ([SAME], FACTS, Policy((WayOn.DROP,)), WayOn.DROP, ""),
    ],
)
def test_the_first_allowed_way_that_is_open(
    targets: list[Target], facts: Facts, policy: Policy, way: WayOn | None, target: str
) -> None:
    assert chosen(facts, targets, policy) == (way, target)


def test_every_target_that_was_passed_over_says_why() -> None:
    short = Target("short", replace(HERE, max_model_len=1200), False, True, 2048)
    choice = choose(FACTS, HERE, [short, replace(SAME, accepting=False)], Policy((WayOn.EXACT,)), COSTS)
    assert choice.why_not == ("short: context: 1500 tokens do not fit into 1200", "same: takes no moves now")


def test_a_slow_measured_transfer_lets_a_session_end_where_it_is() -> None:
    slow, fast = Costs(0.05, move_bytes_per_second=1024.0), Costs(0.05, move_bytes_per_second=1e9)
    assert choose(FACTS, HERE, [OTHER_KV], DEFAULT, slow).way is WayOn.FINISH_SOON
    assert choose(FACTS, HERE, [OTHER_KV], DEFAULT, fast).way is WayOn.CONVERT
