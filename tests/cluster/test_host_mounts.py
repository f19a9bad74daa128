"""Which host folders a Pod needs to run this machine's Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroll_cluster.errors import ClusterError
from kvroll_cluster.host_mounts import host_mounts, interpreter_prefixes, mounted_paths, outermost, virtual_environment


def environment(folder: Path, target: Path) -> Path:
    """A virtual environment whose bin/python links to `target`."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(target)
    (folder / "pyvenv.cfg").write_text(f"home = {target.parent}\nversion = 3.11\n")
    return folder


def test_every_hop_to_the_interpreter_is_followed(tmp_path: Path) -> None:
    patch = tmp_path / "pythons" / "3.11.7"
    (patch / "bin").mkdir(parents=True)
    (patch / "bin" / "python3.11").touch()
    (patch / "bin" / "python3").symlink_to("python3.11")
    minor = tmp_path / "pythons" / "3.11"
    minor.symlink_to("3.11.7")
    venv = environment(tmp_path / "venv", minor / "bin" / "python3")
    assert {minor, patch} <= set(interpreter_prefixes(venv))


def test_what_lies_inside_another_mount_is_left_out() -> None:
    paths = [Path("/src/kvroll"), Path("/src/kvroll/.venv"), Path("/usr"), Path("/opt/py"), Path("/src/kvroll")]
    assert outermost(paths, [Path("/usr")]) == [Path("/src/kvroll"), Path("/opt/py")]


def test_a_system_python_needs_no_mount_of_its_own(tmp_path: Path) -> None:
    venv = environment(tmp_path / "checkout" / ".venv", Path("/usr/bin/python3"))
    ours = [path for path in mounted_paths(tmp_path / "checkout", venv) if not str(path).startswith(("/usr", "/lib"))]
    assert [path for path in ours if path not in (Path("/bin"), Path("/sbin"))] == [tmp_path / "checkout"]


def test_volumes_and_mounts_pair_by_name_and_are_read_only() -> None:
    rendered = host_mounts([Path("/usr"), Path("/src/kvroll")])
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in rendered["volumes"]}
    assert {mount["name"]: mount["mountPath"] for mount in rendered["volumeMounts"]} == paths
    assert all(mount["readOnly"] for mount in rendered["volumeMounts"])


def test_a_folder_without_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no bin/python"):
        virtual_environment(tmp_path, tmp_path / "nothing")


def test_a_folder_of_models_is_mounted_too_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    venv = environment(tmp_path / "checkout" / ".venv", Path("/usr/bin/python3"))
    models = tmp_path / "models"
    models.mkdir()
    assert mounted_paths(tmp_path / "checkout", venv, [models])[-1] == models
    with pytest.raises(ClusterError, match="found none at"):
        mounted_paths(tmp_path / "checkout", venv, [tmp_path / "nothing"])
