"""The objects that a new cluster starts with: rights of kube-proxy and CoreDNS, and the DNS Service."""

from __future__ import annotations

from typing import Any

from kvroll_cluster.layout import Layout


def initial_objects(layout: Layout) -> dict[str, Any]:
    """All of them as one v1 List."""
    items = [
        _binding("kvroll:kube-proxy", "system:node-proxier", "system:kube-proxy"),
        _dns_role(),
        _binding("system:coredns", "system:coredns", "system:coredns"),
        *_dns_service(layout),
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _binding(name: str, role: str, user: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def _dns_role() -> dict[str, Any]:
    core = {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]}
    slices = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [core, slices],
    }


def _dns_service(layout: Layout) -> list[dict[str, Any]]:
    """CoreDNS is a host process, so the Service has no selector and its endpoint is written by hand."""
    protocols = (("dns", "UDP"), ("dns-tcp", "TCP"))
    metadata = {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}
    ports = [{"name": name, "port": 53, "protocol": protocol, "targetPort": 53} for name, protocol in protocols]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": layout.dns_service, "ports": ports},
    }
    labels = {"kubernetes.io/service-name": "kube-dns", "endpointslice.kubernetes.io/managed-by": "kvroll-cluster"}
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns-host", "namespace": "kube-system", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [layout.address], "conditions": {"ready": True}}],
        "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in protocols],
    }
    return [service, endpoints]
