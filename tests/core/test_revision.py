"""Revisions are compared by content, and records survive the way through annotations."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.plan import OnFailure, Pin, Plan, PlanReason, RolloutRecord, Step, Turn, plan_id
from kvroll_core.revision import canonical, revision_name

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def test_unset_fields_do_not_make_another_revision() -> None:
    before = {"precision": {"weights": "bf16", "kvCache": "bf16"}, "engine": {"args": ["--x"]}}
    after = {**before, "template": None, "engine": {"args": ["--x"], "threads": None, "env": {}}}
    assert canonical(before) == canonical(after)


def test_zero_and_false_are_content() -> None:
    assert canonical({"a": 0}) != canonical({"a": None})
    assert canonical({"a": False}) != canonical({})


@given(st.dictionaries(st.text(max_size=3), _JSON, max_size=4))
def test_canonical_is_a_fixed_point_and_ignores_key_order(content: dict[str, object]) -> None:
    text = canonical(content)
    assert canonical(json.loads(text)) == text
    assert canonical(dict(reversed(content.items()))) == text


def test_a_name_that_another_content_holds_is_not_reused() -> None:
    text = canonical({"a": 1})
    name = revision_name(text)
    assert revision_name(text, {name: text}) == name
    assert revision_name(text, {name: "something else"}) != name


def test_a_record_survives_annotations() -> None:
    plan = Plan("id", 3, "b", PlanReason.UPDATE, 12.5, "a", {0: "a", 4: "a"}, (4, 0))
    record = RolloutRecord(
        plan, (Turn(4, 13.0, Step.SURGE),), frozenset({0}), 2, Pin("id", "why", OnFailure.ROLLBACK), True
    )
    written = {key: value for key, value in record.to_annotations().items() if value is not None}
    assert RolloutRecord.from_annotations(written) == record
    assert RolloutRecord.from_annotations({}) == RolloutRecord()
    assert all(value is None for value in RolloutRecord().to_annotations().values())


def test_the_same_change_made_again_has_another_plan_id() -> None:
    first, again = (plan_id(pool_uid="u", from_revision="a", to="b", policy="{}", seq=seq) for seq in (1, 3))
    assert first != again
