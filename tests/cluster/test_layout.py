"""The names and addresses that follow from an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import cache_folder, layout_from


def test_the_default_is_index_0_in_the_hosts_own_network() -> None:
    layout = layout_from({"KVROLL_CACHE": "/c"})
    assert layout.netns is None
    assert (layout.address, layout.dns_service) == ("10.90.0.1", "10.96.0.10")
    assert layout.state == Path("/var/lib/kvroll-cluster")


def test_two_indices_share_no_name_address_or_folder() -> None:
    def names(index: str) -> set[str]:
        layout = layout_from({"KVROLL_CLUSTER_INDEX": index})
        own = {layout.address, layout.private_address, layout.service_subnet, layout.dns_service, layout.cgroup}
        own |= {str(layout.state), str(layout.kubeconfig)}
        for node in layout.nodes:
            own |= {node.bridge, node.pod_subnet, node.cgroup, str(node.containerd_socket)}
        return own

    seen: set[str] = set()
    for index in range(10):
        own = names(str(index))
        assert not own & seen
        seen |= own


def test_bridge_names_and_socket_paths_fit_the_kernels_limits() -> None:
    layout = layout_from({"KVROLL_CLUSTER_INDEX": "9"})
    for node in layout.nodes:
        assert len(node.bridge) <= 15
        assert len(f"{node.containerd_socket}.ttrpc") < 108


@pytest.mark.parametrize("index", ["-1", "10", "x", "1.5"])
def test_a_wrong_index_is_refused_with_what_was_found(index: str) -> None:
    with pytest.raises(ClusterError, match=f"expected 0 to 9, found '{index}'"):
        layout_from({"KVROLL_CLUSTER_INDEX": index})


def test_the_cache_follows_its_variables_in_order() -> None:
    assert cache_folder({"KVROLL_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_folder({"XDG_CACHE_HOME": "/b"}) == Path("/b/kvroll")
    assert cache_folder({}) == Path.home() / ".cache" / "kvroll"
