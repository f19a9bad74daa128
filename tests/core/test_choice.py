"""Which way on a drained session takes."""

from dataclasses import replace

import pytest

from kvroll_core.choice import Costs, MoveTarget, Policy, SessionFacts, choose
from kvroll_core.words import WayOn
from tests.doubles.model_double import descriptor_of

HERE = descriptor_of("bf16", "bf16")
SAME = MoveTarget("same", HERE, True, True, 2048)
OTHER_KV = MoveTarget("other-kv", descriptor_of("bf16", "int8"), False, True, 1024)
OTHER_WEIGHTS = MoveTarget("other-weights", descriptor_of("int8", "bf16"), False, True, 2048)
FACTS = SessionFacts(num_tokens=1000, max_remaining_tokens=500, reproducible=False, same_revision_moves=0)
DEFAULT = Policy((WayOn.FINISH_SOON, WayOn.CONVERT, WayOn.EXACT, WayOn.REPLAY, WayOn.CHECKPOINT, WayOn.FINISH))
NO_HOP = Policy((WayOn.CONVERT, WayOn.REPLAY))
COSTS = Costs(step_seconds=0.05)


def chosen(facts: SessionFacts, targets: list[MoveTarget], policy: Policy = DEFAULT) -> tuple[WayOn | None, str]:
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
    targets: list[MoveTarget], facts: SessionFacts, policy: Policy, way: WayOn | None, target: str
) -> None:
    assert chosen(facts, targets, policy) == (way, target)


def test_every_target_that_was_passed_over_says_why() -> None:
    short = MoveTarget("short", replace(HERE, max_model_len=1200), False, True, 2048)
    choice = choose(FACTS, HERE, [short, replace(SAME, accepting=False)], Policy((WayOn.EXACT,)), COSTS)
    assert choice.why_not == ("short: context: 1500 tokens do not fit into 1200", "same: takes no moves now")


def test_a_slow_measured_transfer_lets_a_session_end_where_it_is() -> None:
    slow, fast = Costs(0.05, move_bytes_per_second=1024.0), Costs(0.05, move_bytes_per_second=1e9)
    assert choose(FACTS, HERE, [OTHER_KV], DEFAULT, slow).way is WayOn.FINISH_SOON
    assert choose(FACTS, HERE, [OTHER_KV], DEFAULT, fast).way is WayOn.CONVERT


BOTH = Policy((WayOn.CONVERT, WayOn.EXACT, WayOn.REPLAY))


@pytest.mark.parametrize(
    ("bytes_per_second", "tokens_per_second", "way"),
    [
        (
            32 * 1024 / 10.0,
            1000.0,
            WayOn.REPLAY,
        ),  # ten seconds for a page of 1024 bytes' 32 pages, one to recompute 1000 tokens
        (32 * 1024 / 0.1, 1000.0, WayOn.CONVERT),
        (32 * 1024.0, 1001.0, WayOn.REPLAY),
        (32 * 1024.0, 1000.0, WayOn.CONVERT),  # level: the pages, whose cost does not grow with the context's square
    ],
)
@pytest.mark.parametrize("order", [BOTH, Policy((WayOn.REPLAY, WayOn.CONVERT))])
def test_measured_rates_choose_between_a_transfer_and_a_replay(
    bytes_per_second: float, tokens_per_second: float, way: WayOn, order: Policy
) -> None:
    costs = Costs(0.05, bytes_per_second, prefill_tokens_per_second=tokens_per_second)
    choice = choose(FACTS, HERE, [OTHER_KV], order, costs)
    assert (choice.way, choice.target) == (way, OTHER_KV)
    assert choice.reason.startswith("by measured rates: ")


@pytest.mark.parametrize(
    ("costs", "unknown"),
    [
        (Costs(0.05), "bytes/s of moves and prefill tokens/s"),
        (Costs(0.05, 1e-3), "prefill tokens/s"),
        (Costs(0.05, prefill_tokens_per_second=1e9), "bytes/s of moves"),
    ],
)
def test_without_both_rates_the_policys_order_decides_and_says_so(costs: Costs, unknown: str) -> None:
    for policy, way in ((BOTH, WayOn.CONVERT), (Policy((WayOn.REPLAY, WayOn.CONVERT)), WayOn.REPLAY)):
        choice = choose(FACTS, HERE, [OTHER_KV], policy, costs)
        assert (choice.way, choice.reason) == (way, f"by the policy's order: {unknown} not measured yet")


def test_a_replay_is_no_choice_where_it_is_not_allowed_or_the_session_is_reproducible() -> None:
    slow_move = Costs(0.05, 1.0, prefill_tokens_per_second=1e9)
    assert choose(FACTS, HERE, [OTHER_KV], Policy((WayOn.CONVERT,)), slow_move).way is WayOn.CONVERT
    assert choose(replace(FACTS, reproducible=True), HERE, [SAME], BOTH, slow_move).way is WayOn.EXACT
    # To be moved again: only its pages are worth it.
    assert choose(FACTS, HERE, [SAME, OTHER_WEIGHTS], BOTH, slow_move).way is WayOn.EXACT


def test_a_measured_prefill_lets_a_session_end_where_it_is_or_not() -> None:
    short = replace(FACTS, max_remaining_tokens=100)  # five seconds
    for tokens_per_second, way in ((100.0, WayOn.FINISH_SOON), (1000.0, WayOn.REPLAY)):
        costs = Costs(0.05, prefill_tokens_per_second=tokens_per_second)
        assert choose(short, HERE, [OTHER_WEIGHTS], DEFAULT, costs).way is way
