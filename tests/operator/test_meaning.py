"""A spec that means the same rolls nothing, one that means something else does, and a record of a great pool can be kept."""

from dataclasses import replace
from typing import Any

import pytest

from kvroll_core.plan import Plan, PlanReason, RolloutRecord, Step, Turn
from kvroll_operator.api.pool import PoolSpec
from kvroll_operator.rollout.decide.writes import CreateRevision
from kvroll_operator.rollout.facts.desired import Desired, desired_from
from kvroll_operator.rollout.facts.observed import Observed, Pod, Report, Revision
from kvroll_operator.rollout.facts.view import Seen
from kvroll_operator.rollout.transition import transition

NOW = 1_000_000.0
ANNOTATIONS_BYTES = 256 * 1024
"""The API server's bound for all annotations of an object."""


def wanted(**changes: Any) -> Desired:
    spec = {
        "replicas": 1,
        "model": {"name": "m", "uri": "file:///m"},
        "precision": {"weights": "bf16", "kvCache": "bf16"},
        "engine": {"image": "i"},
        **changes,
    }
    return desired_from({"name": "p", "uid": "u"}, PoolSpec.model_validate(spec), ())


def is_another(before: Desired, after: Desired) -> bool:
    """Whether a pool that serves `before` makes a new revision for `after`."""
    plan = Plan("first", 1, "a", PlanReason.INITIAL, NOW)
    held = Revision("p-a", "a", "ua", "1", 1, before.content, RolloutRecord(plan=plan, stable=1), has_empties=True)
    _, effects = transition(after, Observed(NOW, revisions=(held,)))
    return any(isinstance(effect, CreateRevision) for effect in effects)


def limits(**named: Any) -> dict[str, Any]:
    return {"resources": {"limits": {name.replace("_", "."): amount for name, amount in named.items()}}}


def pod(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": spec}}


def spread(**fields: Any) -> dict[str, Any]:
    return pod(
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | fields]
    )


def beside(**fields: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}} | fields
    return pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (limits(gpu=1), limits(gpu="1")),
        (limits(cpu=2), limits(cpu="2000m")),
        (limits(memory="16Gi"), limits(memory="16384Mi")),
        (limits(memory="1000000"), limits(memory="1M")),
        ({}, pod(restartPolicy="Always")),
        ({}, pod(dnsPolicy="ClusterFirst")),
        (pod(restartPolicy="Always"), pod()),
    ],
)
def test_another_spelling_of_the_same_rolls_nothing(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert wanted(**before).content, "the content is there"
    assert not is_another(wanted(**before), wanted(**after))
    assert not is_another(wanted(**after), wanted(**before))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (limits(cpu=2), limits(cpu="2001m")),
        (limits(memory="16Gi"), limits(memory="16G")),
        ({}, pod(restartPolicy="OnFailure")),
        (spread(), spread(labelSelector={})),
        (beside(), beside(namespaceSelector={})),
        (beside(labelSelector={}), beside(labelSelector={"matchLabels": {"a": "b"}})),
    ],
)
def test_what_means_something_else_rolls(before: dict[str, Any], after: dict[str, Any]) -> None:
    """An empty selector selects everything, an absent one nothing."""
    assert is_another(wanted(**before), wanted(**after))
    assert is_another(wanted(**after), wanted(**before))


def test_an_autoscaler_may_ask_for_replicas_that_fill_no_group() -> None:
    desired = wanted(replicas=3, groups={"size": 2})
    assert (desired.num_groups, desired.num_workers) == (2, 4)
    unset = PoolSpec.model_validate(
        {"model": {"name": "m", "uri": "file:///m"}, "precision": {"weights": "bf16", "kvCache": "bf16"}}
    )
    assert unset.replicas >= 1, "an absent count is one that a scale subresource can be read from"


def test_a_record_of_ten_thousand_groups_fits_into_annotations() -> None:
    groups = range(10_000)
    record = RolloutRecord(
        plan=Plan("id", 2, "b", PlanReason.UPDATE, NOW, "a", dict.fromkeys(groups, "a"), tuple(reversed(groups))),
        done=frozenset(group for group in groups if group % 3),
        turn=tuple(Turn(group, NOW, Step.SURGE) for group in range(0, 30, 3)),
    )
    written = {key: text for key, text in record.to_annotations().items() if text is not None}
    assert sum(len(key) + len(text) for key, text in written.items()) < ANNOTATIONS_BYTES / 2
    assert RolloutRecord.from_annotations(written) == record


@pytest.mark.parametrize("reason", [PlanReason.REVERT, PlanReason.ROLLBACK])
def test_a_worker_of_the_wanted_revision_serves_so_its_group_is_not_drained_first(reason: PlanReason) -> None:
    """The old worker may be broken: what counts is whether anything of the group serves."""
    old, new = wanted(), replace(wanted(precision={"weights": "bf16", "kvCache": "int8"}), content="")
    desired = replace(old, max_surge=1, generation=new.generation)
    back = Plan("back", 3, "a", reason, NOW - 10, "b", {0: "b"}, (0,))
    revisions = (
        Revision("p-a", "a", "ua", "1", 1, old.content, RolloutRecord(plan=back, stable=1)),
        Revision("p-b", "b", "ub", "1", 2, '{"precision":{"kvCache":"int8"}}'),
    )
    broken = Pod(
        "p-b-0-0-0", "x", "1", "b", 0, 0, 0, NOW - 900, admitted=True, not_ready_since=NOW - 800, scheduled=True
    )
    report = Report("y/1", "10.0.0.1:7070", True, True, False, sessions=3)
    serving = Pod("p-a-0-0-0", "y", "1", "a", 0, 0, 0, NOW - 900, admitted=True, report=report)
    serving = replace(serving, phase="Running", scheduled=True, ready_since=NOW - 800, started_at=NOW - 850)
    seen = Seen(desired, Observed(NOW, (broken, serving), revisions))
    assert seen.is_broken(broken)
    assert seen.serves(serving)
    _, effects = transition(desired, Observed(NOW, (broken, serving), revisions))
    turns = [turn for effect in effects for turn in getattr(getattr(effect, "record", None), "turn", ())]
    assert [turn.step for turn in turns] == [Step.SURGE]
