"""`kvroll status` against recorded objects over HTTP."""

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

from tests.cli.conftest import Recorded
from tests.cli.recorded import drain, pool

Kvroll = Callable[..., Result]


def rows(text: str) -> dict[str, list[str]]:
    """Lines of a table by their first word."""
    return {words[0]: words for line in text.splitlines() if (words := line.split())}


def test_one_pool_is_shown_in_detail(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", pool())
    api.listed("kvdrains", drain())
    done = kvroll("status")
    assert done.exit_code == 0
    found = rows(done.stdout)
    told = ["demo/demo", "smollm2", "bf16", "int8", "3/3", "1/3", "Rolling", "1/3", "18", "0", "NotRun", "Unknown"]
    assert found["demo/demo"] == told
    assert found["0"] == ["0", "Updated", "bbbb2222", "bf16/int8", "7"]
    assert found["1"][:8] == ["1", "Draining", "aaaa1111", "bf16/bf16", "bbbb2222", "5", "1", "5"]
    assert found["2"] == ["2", "Stable", "aaaa1111", "bf16/bf16", "bbbb2222", "6"]
    assert found["demo-aaaa1111-1-0-0"][1:9] == ["Rollout", "Draining", "6", "5", "0", "1", "0", "0"]
    assert "held 13, exact 0, converted 7, replayed 0, finished 1, lost 0; 3.0 MiB moved" in done.stdout


def test_only_conditions_that_are_news_are_shown(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", pool())
    api.listed("kvdrains")
    text = kvroll("status", "demo").stdout
    assert "CapacityFeasible=False NoSurgeDevice: no node has room" in text
    assert "Progressing=True Rolling: group 1 drains" in text
    assert "Ready=" not in text
    assert "GatePassed" not in text


def test_a_lost_session_is_seen(api: Recorded, kvroll: Kvroll) -> None:
    lost = pool(rollout={"id": "r-2", "phase": "Rolling", "sessions": {"lost": 2}})
    api.listed("kvpools", lost)
    api.listed("kvdrains")
    assert rows(kvroll("status").stdout)["demo/demo"][-3] == "2"


def test_drains_of_another_pool_are_not_shown(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", pool())
    api.listed("kvdrains", drain(ownerReferences=[{"uid": "p-9"}], labels={"kvroll.dev/pool": "other"}))
    assert "demo-aaaa1111-1-0-0" not in kvroll("status").stdout


def test_many_pools_are_a_table(api: Recorded, kvroll: Kvroll) -> None:
    second = pool()
    second["metadata"] = {**second["metadata"], "name": "chat", "namespace": "prod", "uid": "p-2"}
    api.listed("kvpools", pool(), second, namespace=None)
    api.listed("kvdrains", drain(), namespace=None)
    done = kvroll("status", "-A")
    assert {"demo/demo", "prod/chat"} <= set(rows(done.stdout))
    assert "PHASE" not in done.stdout


def test_a_pool_without_a_status_yet_is_shown_too(api: Recorded, kvroll: Kvroll) -> None:
    new = pool()
    del new["status"]
    api.listed("kvpools", new)
    api.listed("kvdrains")
    done = kvroll("status")
    assert done.exit_code == 0
    assert "no rollout yet" in done.stdout


def test_a_newer_operator_may_say_more(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", pool(futureField={"a": 1}))
    api.listed("kvdrains")
    assert kvroll("status").exit_code == 0


def test_json_has_the_words_of_the_api(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", pool())
    api.listed("kvdrains", drain())
    found = json.loads(kvroll("status", "-o", "json").stdout)["pools"]
    assert [(p["namespace"], p["name"]) for p in found] == [("demo", "demo")]
    assert found[0]["status"]["rollout"]["from"] == "aaaa1111"
    assert found[0]["status"]["rollout"]["sessions"]["wireBytes"] == 3 * 1024 * 1024
    assert found[0]["drains"][0]["status"]["remaining"] == 5


def test_no_pool_at_all(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools")
    done = kvroll("status")
    assert (done.exit_code, done.stdout.strip()) == (0, "no InferencePool of kvroll.dev here")


def test_the_namespace_is_the_contexts_or_the_named_one(api: Recorded, kvroll: Kvroll) -> None:
    api.listed("kvpools", pool(), namespace="default")
    api.listed("kvdrains", namespace="default")
    assert "demo/demo" in kvroll("status", "--context", "bare").stdout
    assert "demo/demo" in kvroll("status", "-n", "default").stdout


# --- refusals ------------------------------------------------------------------------------------------------------------------


def test_an_unknown_pool_is_named(api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    api.listed("kvpools", pool())
    assert kvroll("status", "chta").exit_code == 1
    assert capfd.readouterr().err == "kvroll: expected an InferencePool chta, found none in namespace demo\n"


def test_missing_definitions_say_how_to_get_them(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]
) -> None:
    assert kvroll("status").exit_code == 1
    assert (
        "this cluster does not know kvroll.dev: helm install kvroll-crds charts/kvroll-crds" in capfd.readouterr().err
    )


def test_the_api_servers_own_sentence_is_passed_on(
    api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]
) -> None:
    message = 'kvpools.kvroll.dev is forbidden: User "me" cannot list resource "kvpools"'
    api.answers["/apis/kvroll.dev/v1alpha1/namespaces/demo/kvpools"] = (403, {"kind": "Status", "message": message})
    assert kvroll("status").exit_code == 1
    assert capfd.readouterr().err == f"kvroll: {message}\n"


def test_no_kubeconfig(kvroll: Kvroll, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    assert kvroll("status").exit_code == 1
    assert capfd.readouterr().err.startswith(
        "kvroll: expected a kubeconfig (KUBECONFIG, or ~/.kube/config), found none"
    )


def test_watching_objects_is_kubectls_work(api: Recorded, kvroll: Kvroll, capfd: pytest.CaptureFixture[str]) -> None:
    assert kvroll("status", "-w", "-o", "json").exit_code == 2
    assert "kubectl get kvpool -w -o json" in capfd.readouterr().err
