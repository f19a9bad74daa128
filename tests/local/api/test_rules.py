"""The CEL rules of our CRDs: every one compiles, holds for a sound object, and refuses an unsound one; and how rules behave in general."""

from collections.abc import Iterator
from typing import Any

import pytest

from kvroll_local.api.kinds.crd import CrdUnusable, kinds_of
from kvroll_local.api.schema.rules import RULES, RuleUnusable, broken_rules, compile_all, evaluate, is_transition
from kvroll_local.api.schema.typed import typed


def rules(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, rule) of every rule below a schema."""
    if not isinstance(schema, dict):
        return
    for rule in schema.get(RULES, ()):
        yield path, rule
    for key, part in schema.get("properties", {}).items():
        yield from rules(part, f"{path}.{key}".lstrip("."))
    yield from rules(schema.get("items"), f"{path}[]")
    yield from rules(schema.get("additionalProperties"), f"{path}{{}}")


# (end of a rule's path, words of the rule): a value of self that holds, one that does not.
SAMPLES: list[tuple[str, str, Any, Any]] = [
    ("kvMemory", "isQuantity", "1Gi", "0"),
    ("kvMemory", "isQuantity", "512Mi", "much"),
    ("at", "exists_one", ["Canary", "Final"], ["Canary", "Canary"]),
    ("at", "'EveryGroup')", ["EveryGroup"], ["Final"]),
    ("uri", "startsWith('http", "https://a/b", "ftp://a/b"),
    ("dataset", "configMap", {"uri": "file:///a"}, {"uri": "file:///a", "configMap": "a"}),
    ("dataset", "configMap", {"configMap": "a"}, {}),
    ("name", "matches('^[A-Za-z0-9-]+$')", "X-Token", "X Token"),
    ("value", "matches(", "plain", "two\nlines"),
    ("url", "isURL", "https://a:80/b", "a/b"),
    ("url", "isURL", "http://a", "file:///a"),
    ("address", "isURL", "https://a:80/b", "ftp://a"),
    ("metrics", "has(m.min) !=", [{"min": 0.5}, {"max": 1}], [{"min": 0.5, "max": 1}]),
    ("metrics", "m.min >= 0.0", [{"name": "klMean", "max": 2.5}], [{"name": "klMean", "max": -0.1}]),
    ("metrics", "m.max <= 1.0", [{"name": "pplRatio", "max": 1.5}], [{"name": "needleRecall", "min": 1.5}]),
    ("gate", "== has(self.job)", {"source": "Job", "job": {}}, {"source": "Job"}),
    ("gate", "== has(self.http)", {"source": "HTTP", "http": {}}, {"source": "Builtin", "http": {}}),
    ("gate", "== has(self.prometheus)", {"source": "Prometheus", "prometheus": {}}, {"source": "Prometheus"}),
    ("gate", "has(self.dataset)", {"source": "Builtin", "dataset": {}}, {"source": "HTTP", "dataset": {}}),
    ("gate", "size(self.metrics) > 0", {"source": "HTTP", "metrics": [{}]}, {"source": "HTTP", "metrics": []}),
    ("gate", "m.name in", {"source": "Builtin", "metrics": [{"name": "klMean"}]}, {"source": "Builtin", "metrics": [{"name": "x"}]}),
    ("gate", "has(m.query)", {"source": "Prometheus", "metrics": [{"query": "x"}]}, {"source": "HTTP", "metrics": [{"query": "x"}]}),
    ("model.uri", "pvc://", "file:///m", "hf://org/m"),
    ("model.uri", "pvc://", "pvc://a/b", "pvc:///b"),
    ("kvCache", "in [", "int8", "int3"),
    ("weights", "in [", "int4", "int3"),
    ("residualTokens", "% 32", 64, 65),
    ("skipLayers", "exists_one", [1, 2], [1, 1]),
    ("precision", "skipLayers", {"kvCache": "int8", "skipLayers": [1]}, {"kvCache": "kivi4", "skipLayers": [1]}),
    ("precision", "residualTokens", {"kvCache": "kivi4", "residualTokens": 64}, {"kvCache": "int8", "residualTokens": 64}),
    ("rollout", "maxSurge", {"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 0, "maxUnavailable": 0}),
    ("allow", "exists_one", ["Exact", "Finish"], ["Finish", "Finish"]),
    ("allow", "'Checkpoint'", ["Finish"], ["Checkpoint", "Finish"]),
    ("allow", "- 1] == 'Drop'", ["Finish", "Drop"], ["Drop", "Finish"]),
    ("allow", "['Replay'", ["Exact", "Replay"], ["Exact"]),
]  # fmt: skip


def test_every_rule_of_our_crds_has_a_value_that_it_takes_and_one_that_it_refuses(crds: list[dict[str, Any]]) -> None:
    unproven, used = [], set()
    for crd in crds:
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for path, rule in rules(root):
            if is_transition(rule["rule"]):
                assert evaluate(rule["rule"], "a", "a") is True
                assert evaluate(rule["rule"], "b", "a") is False
                continue
            tried = [(good, bad) for end, words, good, bad in SAMPLES if path.endswith(end) and words in rule["rule"]]
            used |= {(end, words) for end, words, *_ in SAMPLES if path.endswith(end) and words in rule["rule"]}
            for good, bad in tried:
                assert evaluate(rule["rule"], good) is True, f"{path}: {rule['rule']} must take {good!r}"
                assert evaluate(rule["rule"], bad) is False, f"{path}: {rule['rule']} must refuse {bad!r}"
                if "messageExpression" in rule:
                    assert bad in evaluate(rule["messageExpression"], bad)
            if not tried:
                unproven.append(f"{path}: {rule['rule']}")
    assert used == {(end, words) for end, words, *_ in SAMPLES}, "a sample of a rule that is no more"
    assert not unproven, "give each rule a value that it takes and one that it refuses, in SAMPLES"


def test_the_kinds_of_our_crds_know_all_their_rules(crds: list[dict[str, Any]]) -> None:
    for crd in crds:
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        (kind,) = kinds_of(crd)
        assert kind.schema.num_rules == len(list(rules(root))) > 0


def schema_with(rule: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "integer"}}, RULES: [{"rule": rule, **more}]}


def test_a_rule_that_cannot_be_evaluated_refuses() -> None:
    ((path, message),) = broken_rules(schema_with("self.a > 1"), {"b": 1}, None)
    assert path == ""
    assert "self.a > 1" in message


def test_a_message_may_be_computed_and_falls_back_where_it_cannot_be() -> None:
    computed = schema_with("self.a > 1", message="plain", messageExpression="'found ' + string(self.a)")
    assert [*broken_rules(computed, {"a": 1}, None)] == [("", "found 1")]
    broken = schema_with("self.a > 1", message="plain", messageExpression="self.none")
    assert [*broken_rules(broken, {"a": 1}, None)] == [("", "plain")]


def test_a_transition_rule_is_left_out_where_there_is_no_past() -> None:
    never_down = schema_with("self.a >= oldSelf.a", message="may not shrink")
    assert not [*broken_rules(never_down, {"a": 1}, None)]
    assert not [*broken_rules(never_down, {"a": 2}, {"a": 1})]
    assert [*broken_rules(never_down, {"a": 1}, {"a": 2})] == [("", "may not shrink")]


def test_items_of_a_list_with_keys_are_compared_with_their_own_past() -> None:
    item = {
        "type": "object",
        "properties": {"v": {"type": "integer"}},
        RULES: [{"rule": "self.v >= oldSelf.v", "message": "m"}],
    }
    keyed = {"type": "array", "items": item, "x-kubernetes-list-map-keys": ["k"]}
    old = [{"k": "x", "v": 1}, {"k": "y", "v": 5}]
    assert [*broken_rules(keyed, [{"k": "y", "v": 4}, {"k": "x", "v": 1}], old)] == [("[0]", "m")]


def test_what_an_update_leaves_alone_is_not_judged_again() -> None:
    assert not [*broken_rules(schema_with("self.a > 1"), {"a": 1}, {"a": 1})]
    assert [*broken_rules(schema_with("self.a > 1"), {"a": 0}, {"a": 1})]


@pytest.mark.parametrize(
    "rule", ["self.a >", "self.a.format('x') == 'y'", "authorizer.path('/').check('get').allowed()"]
)
def test_a_rule_that_cannot_be_enforced_refuses_its_crd(rule: str) -> None:
    with pytest.raises(RuleUnusable):
        compile_all(schema_with(rule))


def test_a_crd_that_needs_a_webhook_is_refused(crds: list[dict[str, Any]]) -> None:
    crd = {**crds[0], "spec": {**crds[0]["spec"], "conversion": {"strategy": "Webhook"}}}
    with pytest.raises(CrdUnusable, match="conversion webhooks"):
        list(kinds_of(crd))


def test_rules_see_numbers_and_names_as_the_schema_types_them() -> None:
    schema = {"type": "object", "properties": {"in": {"type": "number"}, "a-b": {"type": "integer"}}}
    seen = typed(schema, {"in": 1, "a-b": 2, "free": 3})
    assert seen == {"__in__": 1.0, "a__dash__b": 2, "free": 3}
    assert isinstance(seen["__in__"], float)
