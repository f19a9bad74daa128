"""The cache of built binaries."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kvroll_cluster import build
from kvroll_cluster.build import Progress, cache_key, ensure_binaries, version_flags
from kvroll_cluster.errors import ClusterError


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "module"
    (folder / "pause").mkdir(parents=True)
    (folder / "go.mod").write_text("module m\n")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text("package main\n")
    (folder / "pause" / "main.go").write_text("package main\n")
    return folder


def test_the_key_follows_every_source_and_nothing_else(module: Path) -> None:
    first = cache_key(module)
    (module / "README.md").write_text("words")
    assert cache_key(module) == first
    seen = {first}
    for name in ("go.mod", "go.sum", "main.go", "pause/main.go"):
        (module / name).write_text((module / name).read_text() + "// more\n")
        assert cache_key(module) not in seen
        seen.add(cache_key(module))


def test_text_that_moves_between_two_files_changes_the_key(module: Path) -> None:
    (module / "a.go").write_text("xy")
    (module / "b.go").write_text("")
    first = cache_key(module)
    (module / "a.go").write_text("x")
    (module / "b.go").write_text("y")
    assert cache_key(module) != first


def test_a_failed_build_leaves_nothing_that_looks_built(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(source: Path, package: str, output: Path) -> None:
        output.write_text("half")
        if package != ".":
            raise ClusterError("no")

    monkeypatch.setattr(build, "_go_build", half)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    with pytest.raises(ClusterError):
        ensure_binaries(module, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache" / "cluster").iterdir()] == [".lock"]


def test_a_build_happens_once_and_links_every_component(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def fake(source: Path, package: str, output: Path) -> None:
        built.append(package)
        output.write_text(package)

    monkeypatch.setattr(build, "_go_build", fake)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    folder = ensure_binaries(module, tmp_path / "cache")
    assert ensure_binaries(module, tmp_path / "cache") == folder
    assert built == [".", "./pause"]
    assert {name for name in build.COMPONENTS if (folder / name).read_text() == "."} == set(build.COMPONENTS)


def test_without_go_the_message_names_a_way_on(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ClusterError, match="set KUBECONFIG"):
        ensure_binaries(module, tmp_path / "cache")


def test_the_stamped_version_is_the_one_that_go_mod_requires() -> None:
    requires = (Path(build.__file__).parents[1] / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{build.KUBERNETES_VERSION}\n" in requires
    assert f"helm.sh/helm/v4 v{build.HELM_VERSION}\n" in requires
    assert "version.gitMajor=1 " in version_flags()


def test_progress_counts_packages_and_keeps_messages() -> None:
    progress = Progress("building")
    for line in ("k8s.io/api/core/v1", "# k8s.io/broken", "main.go:3:1: expected declaration", "fmt"):
        progress.add(line)
    assert progress.packages == 2
    assert progress.messages == ["# k8s.io/broken", "main.go:3:1: expected declaration"]
    assert progress.line() == "building: 0m00s, 2 packages compiled"


def test_a_second_caller_says_that_it_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "x.lock"

    def second() -> None:
        with build.locked(lock):
            pass

    thread = threading.Thread(target=second)
    with build.locked(lock):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert f"waiting for another run that holds {lock}" in capsys.readouterr().err
    thread.join(5)
    assert not thread.is_alive()
