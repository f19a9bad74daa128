"""The parts of the removal that need no root."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroll_cluster import cgroups
from kvroll_cluster.errors import ClusterError
from kvroll_cluster.foreign import chosen_kubeconfig
from kvroll_cluster.layout import layout_from
from kvroll_cluster.teardown import check_state_folder, mounts_below, shim_sockets

MOUNTINFO = """\
25 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
30 25 0:20 / /var/lib/kvroll-cluster/n1/kubelet rw - ext4 /dev/vda rw
31 30 0:21 / /var/lib/kvroll-cluster/n1/kubelet/pods/a\\040b rw - tmpfs tmpfs rw
32 25 0:22 / /var/lib/kvroll-cluster-1/n1 rw - tmpfs tmpfs rw
33 25 0:23 / /var/lib/kvroll rw - tmpfs tmpfs rw
"""


def test_mounts_are_found_deepest_first_and_a_like_named_folder_is_spared() -> None:
    found = mounts_below(Path("/var/lib/kvroll-cluster"), MOUNTINFO)
    assert [str(path) for path in found] == [
        "/var/lib/kvroll-cluster/n1/kubelet/pods/a b",
        "/var/lib/kvroll-cluster/n1/kubelet",
    ]


def test_only_shim_sockets_of_this_cluster_are_named(tmp_path: Path) -> None:
    bundle = tmp_path / "n1/containerd-state/io.containerd.runtime.v2.task/k8s.io/abc"
    bundle.mkdir(parents=True)
    (bundle / "address").write_text("unix:///run/containerd/s/123")
    other = bundle.parent / "def"
    other.mkdir()
    (other / "address").write_text("unix:///etc/passwd")
    assert shim_sockets(tmp_path) == [Path("/run/containerd/s/123")]


def test_a_state_folder_with_strangers_is_refused(tmp_path: Path) -> None:
    layout = layout_from({"KVROLL_CLUSTER_DIR": str(tmp_path)})
    check_state_folder(layout)
    (tmp_path / "logs").mkdir()
    check_state_folder(layout)
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ClusterError, match=r"thesis\.txt"):
        check_state_folder(layout)


def test_our_own_kubeconfig_does_not_count_as_a_cluster_of_the_users(tmp_path: Path) -> None:
    layout = layout_from({"KVROLL_CLUSTER_DIR": str(tmp_path)})
    assert chosen_kubeconfig({}, layout) is None
    assert chosen_kubeconfig({"KUBECONFIG": str(layout.kubeconfig)}, layout) is None
    assert chosen_kubeconfig({"KUBECONFIG": "/home/me/.kube/config"}, layout) == Path("/home/me/.kube/config")


def test_pids_are_collected_over_all_hierarchies_and_empty_trees_removed(tmp_path: Path) -> None:
    for hierarchy, pids in (("pids", "11\n12\n"), ("memory", "12\n13\n")):
        (tmp_path / hierarchy).mkdir()
        (tmp_path / hierarchy / "cgroup.procs").touch()
        deep = tmp_path / hierarchy / "kvroll-3" / "n1" / "pod"
        deep.mkdir(parents=True)
        (deep / "cgroup.procs").write_text(pids)
    assert cgroups.process_ids("kvroll-3", tmp_path) == {11, 12, 13}
    assert cgroups.tracking_folder("kvroll-3", tmp_path) == tmp_path / "pids" / "kvroll-3"
    for procs in tmp_path.glob("*/kvroll-3/n1/pod/cgroup.procs"):
        procs.unlink()  # the kernel's files do not hinder rmdir; ordinary ones do
    assert cgroups.remove("kvroll-3", 0.5, tmp_path) == []
    assert not list(tmp_path.glob("*/kvroll-3"))
