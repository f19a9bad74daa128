"""What the launcher prints without a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from kvroll_cluster import build, main, packages
from kvroll_cluster.errors import ClusterError


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", "KVROLL_CLUSTER", "KVROLL_CLUSTER_INDEX", *main.PROXIES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("KVROLL_CLUSTER_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(build, "ensure_binaries", lambda module, cache: tmp_path / "bin")
    return tmp_path


def test_env_prints_lines_that_a_shell_takes(own_folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["env"]) == 0
    expected = f"export KUBECONFIG={own_folders}/state/admin.kubeconfig\nexport PATH={own_folders}/bin:$PATH\n"
    assert capsys.readouterr().out == expected


def test_env_keeps_a_proxy_away_from_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.9:3128")
    assert main.main(["env"]) == 0
    assert "export NO_PROXY=10.90.0.1,10.96.0.0/24,10.88.0.0/16${NO_PROXY:+,$NO_PROXY}\n" in capsys.readouterr().out


def test_down_leaves_the_users_own_cluster_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object, **options: object) -> list[str]:
        raise AssertionError("tore something down")

    monkeypatch.setattr(main, "tear_down", refuse)
    monkeypatch.setenv("KUBECONFIG", "/home/me/.kube/config")
    assert main.main(["down"]) == 0
    assert "left alone" in capsys.readouterr().out


def test_kind_without_kind_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KVROLL_CLUSTER", "kind")
    monkeypatch.setenv("PATH", "")
    assert main.main(["up"]) == 1
    assert "expected `kind` on PATH, found none" in capsys.readouterr().err


def test_status_of_nothing_is_down(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "running", lambda layout: [])
    assert main.main(["status"]) == main.EXIT_DOWN
    assert capsys.readouterr().out == "down\n"


def test_host_mounts_are_the_same_as_yaml_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["host-mounts", "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert main.main(["host-mounts"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert set(as_json) == {"volumes", "volumeMounts"}


def test_a_plain_user_is_told_the_exact_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(packages, "missing_packages", lambda: ["containerd", "runc"])
    with pytest.raises(ClusterError, match="sudo apt-get install -y --no-install-recommends containerd runc &&"):
        packages.ensure_packages()


def test_only_what_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path="": None if name in ("containerd", "ctr") else f"/bin/{name}")
    monkeypatch.setattr(packages, "cni_folder", lambda: Path("/usr/lib/cni"))
    assert packages.missing_packages() == ["containerd"]
