"""What is rendered for the nodes, CoreDNS and kubectl."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from kvroll_cluster import certificates, configs, control_plane
from kvroll_cluster.layout import Layout, layout_from
from kvroll_cluster.objects import initial_objects


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return layout_from({"KVROLL_CLUSTER_DIR": str(tmp_path / "state"), "KVROLL_CLUSTER_INDEX": "3"})


def test_containerds_toml_keeps_every_path_below_its_node(layout: Layout) -> None:
    for node in layout.nodes:
        config = tomllib.loads(configs.containerd_toml(node, Path("/usr/lib/cni")))
        cri = config["plugins"]["io.containerd.grpc.v1.cri"]
        assert cri["restrict_oom_score_adj"] is True
        assert cri["netns_mounts_under_state_dir"] is True
        paths = [config["root"], config["state"], config["grpc"]["address"], cri["cni"]["conf_dir"]]
        paths.append(cri["containerd"]["runtimes"]["runc"]["options"]["Root"])
        assert all(path.startswith(f"{node.folder}/") for path in paths)


def test_the_bridge_routes_pods_without_masquerading(layout: Layout) -> None:
    node = layout.nodes[1]
    [plugin] = json.loads(configs.cni_conflist(node))["plugins"]
    assert plugin["bridge"] == "kvr3n2"
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.88.32.0/24"}]]
    assert (plugin["ipMasq"], plugin["hairpinMode"], plugin["isGateway"]) == (False, True, True)


def test_a_full_disk_evicts_nothing(layout: Layout) -> None:
    config = configs.kubelet_config(layout, layout.nodes[0])
    assert config["imageGCHighThresholdPercent"] == 100
    assert {value for name, value in config["evictionHard"].items() if name != "memory.available"} == {"0%"}


def test_the_two_kubelets_listen_on_different_ports(layout: Layout) -> None:
    ports = [configs.kubelet_config(layout, node)[key] for node in layout.nodes for key in ("port", "healthzPort")]
    assert len(set(ports)) == 4


def test_dns_is_the_same_address_for_kubelet_service_and_coredns(layout: Layout) -> None:
    service, endpoints = initial_objects(layout)["items"][-2:]
    assert configs.kubelet_config(layout, layout.nodes[0])["clusterDNS"] == [service["spec"]["clusterIP"]]
    assert endpoints["endpoints"][0]["addresses"] == [layout.address]
    assert f"bind {layout.address}\n" in configs.corefile(layout, [])


def test_coredns_forwards_only_when_there_is_someone_to_ask(layout: Layout) -> None:
    assert " forward " not in configs.corefile(layout, [])
    assert "    forward . 192.0.2.53\n" in configs.corefile(layout, ["192.0.2.53"])


def test_loopback_name_servers_are_left_out() -> None:
    text = "# words\nnameserver 127.0.0.53\nsearch x\nnameserver 192.0.2.53\nnameserver ::1\nnameserver\n"
    assert configs.upstream_servers(text) == ["192.0.2.53"]


def test_nothing_listens_outside_loopback_and_the_clusters_own_address(layout: Layout) -> None:
    own = (layout.address, layout.private_address)
    for command in (control_plane.etcd(layout), control_plane.apiserver(layout), control_plane.scheduler(layout)):
        binds = [word for word in command if word.startswith(("--bind-address=", "--listen-"))]
        assert binds
        assert all(any(address in word for address in own) for word in binds)
    assert f"--nodeport-addresses={layout.address}/32" in control_plane.proxy(layout)


def test_certificates_are_signed_by_the_ca_and_the_admin_kubeconfig_stands_alone(layout: Layout) -> None:
    certificates.issue_all(layout)
    authority = x509.load_pem_x509_certificate((layout.pki / "ca.crt").read_bytes())
    for name in ("apiserver", "n1", "n2", "admin", "coredns", "kubelet-client"):
        certificate = x509.load_pem_x509_certificate((layout.pki / f"{name}.crt").read_bytes())
        certificate.verify_directly_issued_by(authority)
    hosts = x509.load_pem_x509_certificate((layout.pki / "apiserver.crt").read_bytes()).extensions
    addresses = hosts.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.IPAddress)
    assert {str(address) for address in addresses} == {layout.address, layout.kubernetes_service}
    assert str(layout.state) not in layout.kubeconfig.read_text()
    config = yaml.safe_load(layout.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.90.3.1:6443"
    assert layout.kubeconfig.stat().st_mode & 0o077 == 0
    assert all(key.stat().st_mode & 0o077 == 0 for key in layout.pki.glob("*.key"))
