"""Alerts and the dashboard ask for series that a scraped pool has, by labels that it has: parsed, and held against the pages of a worker,
a gateway and an operator.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
from prometheus_client import CollectorRegistry

from kvroll_core.wall import Wall
from kvroll_gateway.metrics import GatewayMetrics
from kvroll_operator.api.gate_status import GateMetricStatus, GateStatus
from kvroll_operator.api.status import PoolStatus
from kvroll_operator.metrics import Metrics as OperatorMetrics
from kvroll_operator.rollout.show.phases import RolloutPhase
from kvroll_worker.serve.metrics import Metrics as WorkerMetrics
from tests.charts.conftest import Render, one

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "charts" / "kvroll" / "dashboards" / "kvroll.json"
ON = {"monitoring": {name: {"enabled": True} for name in ("podMonitor", "prometheusRule", "dashboard")}}
OF_A_SCRAPE = {"namespace", "pod", "instance", "job", "container", "endpoint"}
"""Labels that a PodMonitor gives every series."""
OF_A_WORKER = {"kvroll_dev_pool", "kvroll_dev_revision", "kvroll_dev_group"}
"""Those that it takes from a worker's Pod besides (`podTargetLabels`)."""


@pytest.fixture(scope="module")
def scraped() -> dict[str, list[dict[str, str]]]:
    """Labels of every series of a pool, by name."""
    worker, gateway, operator = WorkerMetrics("m"), GatewayMetrics(), OperatorMetrics()
    worker.wall.runs_at({"weights": "bf16", "kv_cache": "int8"})
    for name in ("bytes", "flops"):
        worker.wall.measured("device", name, 1e9)
    gateway.serves("m")
    operator.show("p", PoolStatus(gate=GateStatus(metrics=[GateMetricStatus(name="top1", value=1.0)])))
    found: dict[str, list[dict[str, str]]] = {}
    for registry, more in ((worker.registry, OF_A_WORKER), (gateway.registry, set()), (operator.registry, set())):
        for name, labels in samples(registry):
            found.setdefault(name, []).append(labels | dict.fromkeys(OF_A_SCRAPE | more, "x"))
    return found


def samples(registry: CollectorRegistry) -> Iterator[tuple[str, dict[str, str]]]:
    for family in registry.collect():
        for sample in family.samples:
            yield sample.name, dict(sample.labels)


def parsed(query: str) -> Any:
    """Grafana's variables stand for what they become."""
    for variable, value in (("$__rate_interval", "1m"), ("$namespace", ".*"), ("$pool", ".*")):
        query = query.replace(variable, value)
    return promql.parse(query)


def parts(node: Any) -> Iterator[Any]:
    """A node of a query and all below it."""
    yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        if (below := getattr(node, name, None)) is not None and not isinstance(below, str | float):
            yield from parts(below)
    for argument in getattr(node, "args", None) or ():
        yield from parts(argument)


def problems(query: str, scraped: dict[str, list[dict[str, str]]]) -> list[str]:
    """What the query asks for that no page has: a series, a label, a value, a label to group by."""
    found = []
    selectors = [part for part in parts(parsed(query)) if isinstance(part, promql.VectorSelector)]
    if not selectors:
        found.append(f"no series in {query}")
    for selector in selectors:
        rows = scraped.get(selector.name or "")
        if not rows:
            found.append(f"no series {selector.name}")
            continue
        for matcher in selector.matchers.matchers:
            if not any(matcher.name in row for row in rows):
                found.append(f"{selector.name} has no label {matcher.name}")
            elif not any(_matches(str(matcher.op), matcher.value, row.get(matcher.name, "")) for row in rows):
                found.append(f"{selector.name} has no {matcher.name} {matcher.value}")
    for part in parts(parsed(query)):
        if isinstance(part, promql.AggregateExpr) and part.modifier is not None:
            below = {s.name or "" for s in parts(part.expr) if isinstance(s, promql.VectorSelector)}
            for name in below & scraped.keys():
                lacking = set(part.modifier.labels) - {label for row in scraped[name] for label in row}
                found += [f"{name} has no label {label} to group by" for label in sorted(lacking)]
    return found


def _matches(op: str, wanted: str, value: str) -> bool:
    if "Re" in op or "~" in op:
        return bool(re.fullmatch(wanted, value)) or value == "x"
    return value == "x" or (value != wanted if "Not" in op or "!" in op else value == wanted)


def queries() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]


@pytest.mark.parametrize(("title", "query"), queries())
def test_a_panel_asks_for_what_a_pool_has(title: str, query: str, scraped: dict[str, list[dict[str, str]]]) -> None:
    assert problems(query, scraped) == [], title


def test_what_no_pool_has_is_found(scraped: dict[str, list[dict[str, str]]]) -> None:
    for query, problem in (
        ("sum(kvroll_no_such_total)", "no series kvroll_no_such_total"),
        ('kvroll_rollout_phase{state="Failed"}', "kvroll_rollout_phase has no label state"),
        ('kvroll_rollout_phase{phase="Nonsense"}', "kvroll_rollout_phase has no phase Nonsense"),
        (
            "sum by (shard) (rate(vllm:prompt_tokens_total[1m]))",
            "vllm:prompt_tokens_total has no label shard to group by",
        ),
        ("max by (pool) (vllm:num_requests_running) > 1", "vllm:num_requests_running has no label pool to group by"),
    ):
        assert problems(query, scraped) == [problem]


def test_the_dashboard_is_one_and_its_variables_are_asked_of_a_series() -> None:
    told = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in told["panels"]]
    assert len(set(ids)) == len(ids)
    assert len({panel["title"] for panel in told["panels"]}) == len(ids)
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__rate_interval", "__all"}
    assert used == {variable["name"] for variable in told["templating"]["list"]}
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in told["panels"]]
    assert len(set(places)) == len(places), "two panels in one place"


def test_every_series_of_vllm_that_dashboards_ask_for_is_on_ours(scraped: dict[str, list[dict[str, str]]]) -> None:
    drawn = {s.name for _, q in queries() for s in parts(parsed(q)) if isinstance(s, promql.VectorSelector)}
    for name in (
        "request_queue_time_seconds_sum",
        "request_success_total",
        "kv_cache_usage_perc",
        "iteration_tokens_total_sum",
    ):
        assert f"vllm:{name}" in drawn & scraped.keys()


def test_the_chart_carries_it_where_it_is_asked_for(render: Render) -> None:
    found = one(render("kvroll", ON), "ConfigMap", "kvroll-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["kvroll.json"]) == json.loads(DASHBOARD.read_text())
    assert not [o for o in render("kvroll", {}) if o["kind"] == "ConfigMap"]


def test_alerts_watch_what_a_pool_has(render: Render, scraped: dict[str, list[dict[str, str]]]) -> None:
    objects = render("kvroll", ON)
    [rules] = [o["spec"]["groups"][0]["rules"] for o in objects if o["kind"] == "PrometheusRule"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert problems(rule["expr"], scraped) == [], rule["alert"]
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            grouped = {
                name
                for p in parts(parsed(rule["expr"]))
                if isinstance(p, promql.AggregateExpr) and p.modifier is not None
                for name in p.modifier.labels
            }
            assert label in grouped, f"{rule['alert']} names {label} in its summary and does not group by it"
    workers = next(o for o in objects if o["kind"] == "PodMonitor" and o["metadata"]["name"] == "kvroll-worker")
    assert {re.sub(r"\W", "_", label) for label in workers["spec"]["podTargetLabels"]} == OF_A_WORKER


def test_there_is_an_alert_for_every_way_to_lose_a_session(render: Render) -> None:
    [rules] = [o["spec"]["groups"][0]["rules"] for o in render("kvroll", ON) if o["kind"] == "PrometheusRule"]
    watched = " ".join(rule["expr"] for rule in rules if "ession" in rule["alert"] or "Tokens" in rule["alert"])
    for way in (
        "kvroll_pool_sessions_lost",
        "kvroll_gateway_sessions_lost_total",
        "kvroll_gateway_sessions_poisoned_total",
        'kvroll_sessions_left_total{way="failed"}',
        'kvroll_sessions_left_total{way="orphaned"}',
        'kvroll_gateway_sessions_ended_total{outcome="cut_off"}',
        "kvroll_gateway_record_mismatches_total",
    ):
        assert way in watched


def test_words_of_enums_are_those_of_the_series(scraped: dict[str, list[dict[str, str]]]) -> None:
    assert {row["phase"] for row in scraped["kvroll_rollout_phase"]} == {p for p in RolloutPhase if p}
    assert {row["wall"] for row in scraped["kvroll_pool_wall"]} == set(Wall)
