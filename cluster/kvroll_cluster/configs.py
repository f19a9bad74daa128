"""Renders the configuration files of the nodes and of CoreDNS; pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kvroll_cluster.images import PAUSE_IMAGE
from kvroll_cluster.layout import Layout, Node


def containerd_toml(node: Node, cni_bin: Path) -> str:
    """One containerd of its own. restrict_oom_score_adj is what lets sandboxes start without CAP_SYS_RESOURCE;
    netns mounts below the state folder are found and removed with all other mounts."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{node.folder}/containerd-root"
state = "{node.folder}/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{node.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{node.folder}/opt"

[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
disable_tcp_service = true

[{cri}.cni]
bin_dir = "{cni_bin}"
conf_dir = "{node.folder}/cni"

[{cri}.containerd]
snapshotter = "overlayfs"

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{cri}.containerd.runtimes.runc.options]
Root = "{node.folder}/runc"
"""


def cni_conflist(node: Node) -> str:
    """A bridge with host-local addresses; no masquerading (Pods need no way out) and no portmap (no hostPort)."""
    bridge = {
        "type": "bridge",
        "bridge": node.bridge,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{node.folder}/ipam",
            "ranges": [[{"subnet": node.pod_subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return json.dumps({"cniVersion": "0.4.0", "name": node.bridge, "plugins": [bridge]}, indent=1)


def kubelet_config(layout: Layout, node: Node) -> dict[str, Any]:
    """The kubelet's configuration.

    Eviction and image collection by disk are off: a laptop's disk is often nearly full and holds nothing of ours.
    Status every 2 s and a short lease let the controller manager notice a dead node within its 8 to 12 s of grace.
    """
    never = dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.address,
        "port": node.kubelet_port,
        "readOnlyPort": 0,
        "healthzBindAddress": layout.private_address,
        "healthzPort": node.kubelet_health_port,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(layout.pki / f"{node.name}.key"),
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "clusterDNS": [layout.dns_service],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(node.folder / "pod-logs"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        "volumeStatsAggPeriod": "-1s",
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        "evictionHard": {"memory.available": "50Mi", **never},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def corefile(layout: Layout, upstream: list[str]) -> str:
    """CoreDNS on the node address; names outside the cluster go to `upstream` when there is any.

    Answers live 2 s: a headless Service's Pods must be seen soon after they come and go.
    """
    forward = f"\n    forward . {' '.join(upstream)}" if upstream else ""
    return f""".:53 {{
    bind {layout.address}
    errors
    ready {layout.private_address}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {layout.pki}/coredns.kubeconfig
        pods insecure
        ttl 2
    }}
    cache 2{forward}
}}
"""


def upstream_servers(resolv_conf: str) -> list[str]:
    """The name servers of a resolv.conf, without loopback ones, which CoreDNS might reach itself by."""
    words = [line.split() for line in resolv_conf.splitlines() if line.startswith("nameserver")]
    return [parts[1] for parts in words if len(parts) > 1 and not parts[1].startswith(("127.", "::1"))]


def write_node_files(layout: Layout, node: Node, cni_bin: Path) -> None:
    """Writes all files of one node."""
    (node.folder / "cni").mkdir(parents=True, exist_ok=True)
    (node.folder / "containerd.toml").write_text(containerd_toml(node, cni_bin))
    (node.folder / "cni" / "10-kvroll.conflist").write_text(cni_conflist(node))
    (node.folder / "kubelet.yaml").write_text(yaml.safe_dump(kubelet_config(layout, node), sort_keys=False))
