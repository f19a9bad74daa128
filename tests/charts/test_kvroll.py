"""charts/kvroll: what it renders is valid, gives no more rights than needed, and can be bent to a site."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kvroll_core.release import VERSION
from tests.charts.conftest import Objects, Render, one

ROOT = Path(__file__).parents[2]
KUBERNETES = "1.37"
FULL: dict[str, Any] = {
    "image": {"repository": "registry.example/kvroll", "tag": "dev", "pullPolicy": "Never"},
    "workerImage": "registry.example/worker:dev",
    "imagePullSecrets": [{"name": "pull"}],
    "operator": {
        "command": ["/opt/python", "-m", "kvroll_operator"],
        "extraArgs": ["--verbose"],
        "extraEnv": [{"name": "PATH", "value": "/opt"}],
        "extraVolumes": [{"name": "code", "hostPath": {"path": "/opt", "type": "Directory"}}],
        "extraVolumeMounts": [{"name": "code", "mountPath": "/opt", "readOnly": True}],
        "podAnnotations": {"a": "b"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "podSecurityContext": {"runAsNonRoot": False, "runAsUser": 0},
    },
    "gateway": {"replicas": 2, "service": {"type": "NodePort", "port": 80, "annotations": {"c": "d"}}},
    "monitoring": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True, "labels": {"grafana_dashboard": "1"}, "annotations": {"grafana_folder": "LLM"}},
    },
}
# Everything the parts ask of the API server: (group, resource, verbs).
OPERATOR_NEEDS = [
    ("kvroll.dev", "kvpools", {"get", "list", "watch", "patch"}),
    ("kvroll.dev", "kvpools/status", {"patch"}),
    ("kvroll.dev", "kvpools/finalizers", {"update"}),
    ("kvroll.dev", "kvdrains", {"get", "list", "watch", "create", "patch", "delete"}),
    ("kvroll.dev", "kvdrains/status", {"patch"}),
    ("", "pods", {"get", "list", "watch", "create", "patch", "delete"}),
    ("", "services", {"get", "list", "watch", "create", "patch", "delete"}),
    ("events.k8s.io", "events", {"create", "patch"}),
    ("apps", "controllerrevisions", {"get", "list", "watch", "create", "patch", "delete"}),
    ("", "configmaps", {"get", "list", "create", "patch", "delete"}),
    ("batch", "jobs", {"get", "create", "patch"}),
    ("policy", "poddisruptionbudgets", {"get", "list", "watch", "create", "patch", "delete"}),
]


def pod_spec(objects: Objects, component: str, release: str = "kvroll") -> dict[str, Any]:
    spec: dict[str, Any] = one(objects, "Deployment", f"{release}-{component}")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("chart", ["kvroll", "kvroll-crds"])
def test_lint(helm: Callable[..., subprocess.CompletedProcess[str]], chart: str) -> None:
    done = helm("lint", "--strict", f"charts/{chart}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", [{}, FULL], ids=["defaults", "everything set"])
def test_every_object_is_valid_to_the_letter(render: Render, values: dict[str, Any]) -> None:
    objects = render("kvroll", values)
    kinds = [o["kind"] for o in objects]
    assert {"Deployment", "Service", "ServiceAccount", "Role", "RoleBinding", "Pod"} <= set(kinds)
    assert kinds.count("PodMonitor") == (3 if values else 0)
    for found in objects:
        if found["apiVersion"].startswith("monitoring.coreos.com"):
            continue
        kubernetes_validate.validate(found, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gateway": {"replicas": 0}}, "/gateway/replicas"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"operator": {"replicas": 2}}, "replicas"),
        ({"gatway": {}}, "gatway"),
        ({"gateway": {"service": {"port": 99999}}}, "/gateway/service/port"),
        ({"operator": {"command": []}}, "/operator/command"),
        ({"monitoring": {"podMonitor": {"interval": "soon"}}}, "/monitoring/podMonitor/interval"),
    ],
)
def test_a_bad_value_is_refused_by_name(
    helm: Callable[..., subprocess.CompletedProcess[str]], values: dict[str, Any], message: str
) -> None:
    done = helm("template", "kvroll", "charts/kvroll", "-f", "-", stdin=yaml.safe_dump(values))
    assert done.returncode != 0
    assert message in done.stderr


def allowed(rules: list[dict[str, Any]], group: str, resource: str) -> set[str]:
    return {verb for r in rules if group in r["apiGroups"] and resource in r["resources"] for verb in r["verbs"]}


@pytest.mark.parametrize(("group", "resource", "verbs"), OPERATOR_NEEDS)
def test_the_operator_may_do_what_it_does(render: Render, group: str, resource: str, verbs: set[str]) -> None:
    rules = one(render("kvroll"), "Role", "kvroll-operator")["rules"]
    assert verbs <= allowed(rules, group, resource)


def test_the_gateway_reads_pods_and_nothing_else(render: Render) -> None:
    assert one(render("kvroll"), "Role", "kvroll-gateway")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]


def test_rights_end_at_the_namespace_and_name_what_they_mean(render: Render) -> None:
    objects = render("kvroll", FULL)
    assert not [o for o in objects if o["kind"].startswith("Cluster")]
    words = [word for o in objects if o["kind"] == "Role" for rule in o["rules"] for key in rule for word in rule[key]]
    assert not {"*", "secrets", "pods/exec", "nodes"} & set(words)


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_each_part_runs_as_its_own_account_without_privileges(render: Render, component: str) -> None:
    objects = render("kvroll")
    spec = pod_spec(objects, component)
    binding = one(objects, "RoleBinding", f"kvroll-{component}")
    assert spec["serviceAccountName"] == f"kvroll-{component}"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": f"kvroll-{component}", "namespace": "demo"}]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # Python needs somewhere to write on a read-only root.
    assert {"name": "tmp", "mountPath": "/tmp"} in spec["containers"][0]["volumeMounts"]


def test_never_two_operators_and_never_no_gateway(render: Render) -> None:
    objects = render("kvroll")
    operator, gateway = (one(objects, "Deployment", f"kvroll-{part}")["spec"] for part in ("operator", "gateway"))
    assert (operator["replicas"], operator["strategy"]) == (1, {"type": "Recreate"})
    assert gateway["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert gateway["template"]["spec"]["terminationGracePeriodSeconds"] == 3660


def test_the_service_reaches_the_gateway_alone(render: Render) -> None:
    objects = render("kvroll")
    service = one(objects, "Service", "kvroll-gateway")
    assert service["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway"
    assert service["spec"]["ports"] == [{"name": "http", "port": 8080, "targetPort": "http", "appProtocol": "http"}]
    selected = [
        o["metadata"]["name"]
        for o in objects
        if o["kind"] == "Deployment"
        and service["spec"]["selector"].items() <= o["spec"]["template"]["metadata"]["labels"].items()
    ]
    assert selected == ["kvroll-gateway"]
    assert pod_spec(objects, "gateway")["containers"][0]["ports"] == [{"name": "http", "containerPort": 8080}]


def test_a_site_can_bend_it(render: Render) -> None:
    spec = pod_spec(render("kvroll", FULL), "operator")
    container = spec["containers"][0]
    assert container["image"] == "registry.example/kvroll:dev"
    assert container["command"] == ["/opt/python", "-m", "kvroll_operator"]
    assert container["args"] == [
        "--namespace=$(POD_NAMESPACE)",
        "--lease=kvroll-operator",
        "--worker-image=registry.example/worker:dev",
        "--verbose",
    ]
    assert {"name": "PATH", "value": "/opt"} in container["env"]
    assert spec["volumes"][1:] == FULL["operator"]["extraVolumes"]
    assert container["volumeMounts"][1:] == FULL["operator"]["extraVolumeMounts"]
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"kubernetes.io/os": "linux"}, [{"operator": "Exists"}])
    # Values merge key by key: what is not overridden stays.
    assert spec["securityContext"] == {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_a_gateway_drains_within_the_kubelets_patience(render: Render) -> None:
    for grace, drain in ((3660, 3600), (30, 1)):
        container = pod_spec(render("kvroll", {"gateway": {"terminationGracePeriodSeconds": grace}}), "gateway")[
            "containers"
        ][0]
        assert f"--drain-seconds={drain}" in container["args"]


@pytest.mark.slow  # each starts an interpreter
@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_the_part_knows_every_flag_that_the_chart_passes(render: Render, component: str) -> None:
    arguments = pod_spec(render("kvroll"), component)["containers"][0]["args"]
    done = subprocess.run(
        [sys.executable, "-m", f"kvroll_{component}", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for argument in arguments:
        assert argument.partition("=")[0] in done.stdout


def test_the_worker_image_is_the_chart_image_unless_named(render: Render) -> None:
    container = pod_spec(render("kvroll", {"image": {"repository": "r", "tag": "t"}}), "operator")["containers"][0]
    assert "--worker-image=r:t" in container["args"]


def test_two_releases_do_not_meet(render: Render) -> None:
    names = [
        {(o["kind"], o["metadata"]["name"]) for o in render("kvroll", release=release)}
        for release in ("kvroll", "chat")
    ]
    assert not names[0] & names[1]
    assert (
        pod_spec(render("kvroll", release="chat"), "gateway", "chat-kvroll")["serviceAccountName"]
        == "chat-kvroll-gateway"
    )


def test_the_test_hook_asks_the_service_and_needs_no_rights_of_its_own(render: Render) -> None:
    hook = one(render("kvroll", {"gateway": {"service": {"port": 80}}}), "Pod", "kvroll-test")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "test"
    container = hook["spec"]["containers"][0]
    assert container["command"] == ["python", "-c"]
    compile(container["args"][0], "hook", "exec")
    assert '"http://kvroll-gateway:80"' in container["args"][0]


def test_the_charts_carry_the_version_of_the_distribution() -> None:
    for chart in ("kvroll", "kvroll-crds"):
        found = yaml.safe_load((ROOT / "charts" / chart / "Chart.yaml").read_text())
        assert (found["version"], found["appVersion"]) == (VERSION, VERSION)
