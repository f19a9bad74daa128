"""The command lines of the components that a cluster has once."""

from __future__ import annotations

from kvroll_cluster.layout import Layout


def etcd(layout: Layout) -> list[str]:
    """State is thrown away on `down`, so nothing is worth an fsync."""
    peer = f"http://{layout.private_address}:2380"
    return [
        "etcd",
        f"--data-dir={layout.state}/etcd",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(layout: Layout) -> list[str]:
    """Kubelets are reached by address: their names stand in no DNS."""
    pki = layout.pki
    return [
        "kube-apiserver",
        f"--etcd-servers={layout.etcd_url}",
        "--secure-port=6443",
        f"--bind-address={layout.address}",
        f"--advertise-address={layout.address}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--service-account-key-file={pki}/service-account.pub",
        f"--service-account-signing-key-file={pki}/service-account.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={layout.service_subnet}",
        "--allow-privileged=true",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
    ]


def controller_manager(layout: Layout) -> list[str]:
    pki = layout.pki
    return [
        "kube-controller-manager",
        f"--kubeconfig={pki}/kube-controller-manager.kubeconfig",
        f"--service-account-private-key-file={pki}/service-account.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--use-service-account-credentials",
        "--leader-elect=false",
        f"--bind-address={layout.private_address}",
        "--node-monitor-grace-period=12s",
        "--node-monitor-period=2s",
        "--profiling=false",
    ]


def scheduler(layout: Layout) -> list[str]:
    return [
        "kube-scheduler",
        f"--kubeconfig={layout.pki}/kube-scheduler.kubeconfig",
        "--leader-elect=false",
        f"--bind-address={layout.private_address}",
        "--profiling=false",
    ]


def proxy(layout: Layout) -> list[str]:
    """One for both nodes: they share a network namespace."""
    return [
        "kube-proxy",
        f"--kubeconfig={layout.pki}/kube-proxy.kubeconfig",
        "--proxy-mode=nftables",
        f"--cluster-cidr={layout.pod_supernet}",
        f"--hostname-override={layout.nodes[0].name}",
        f"--bind-address={layout.private_address}",
        f"--healthz-bind-address={layout.private_address}:10256",
        f"--metrics-bind-address={layout.private_address}:10249",
        # NodePorts answer on the cluster's own address only: a machine on a network must not offer them there.
        f"--nodeport-addresses={layout.address}/32",
        "--oom-score-adj=0",
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]


def coredns(layout: Layout) -> list[str]:
    return ["coredns", f"-conf={layout.state}/Corefile"]
