"""The cluster's own authority, the certificates of its components and their kubeconfigs."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvroll_cluster.layout import Layout

VALIDITY = datetime.timedelta(days=3650)


class Authority:
    """Issues certificates of one new CA into a folder; keys are P-256, which costs milliseconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("kvroll-local-ca")
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self.certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        _write_key(folder / "ca.key", self._key)
        _write_certificate(folder / "ca.crt", self.certificate)

    def issue(self, file: str, common_name: str, organization: str | None = None, hosts: tuple[str, ...] = ()) -> None:
        """Writes `<file>.crt` and `<file>.key`, good as client and as server for `hosts` (names or addresses)."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name, organization), self._name, key.public_key())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        _write_key(self.folder / f"{file}.key", key)
        _write_certificate(self.folder / f"{file}.crt", builder.sign(self._key, hashes.SHA256()))


def issue_all(layout: Layout) -> None:
    """Writes every key, certificate and kubeconfig of the cluster."""
    authority = Authority(layout.pki)
    api_hosts = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", layout.address)
    authority.issue("apiserver", "kube-apiserver", hosts=(*api_hosts, layout.kubernetes_service))
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
    authority.issue("admin", "admin", "system:masters")
    for component in ("kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns"):
        authority.issue(component, f"system:{component}")
        write_kubeconfig(layout, component, layout.pki / f"{component}.kubeconfig")
    for node in layout.nodes:
        authority.issue(node.name, f"system:node:{node.name}", "system:nodes", hosts=(node.name, layout.address))
        write_kubeconfig(layout, node.name, layout.pki / f"{node.name}.kubeconfig")
    _service_account_keys(layout.pki)
    write_kubeconfig(layout, "admin", layout.kubeconfig, embed=True)


def write_kubeconfig(layout: Layout, identity: str, path: Path, *, embed: bool = False) -> None:
    """Writes a kubeconfig for one issued identity; `embed` makes it stand alone when it is copied elsewhere."""
    pki = layout.pki
    files = {
        "certificate-authority": "ca.crt",
        "client-certificate": f"{identity}.crt",
        "client-key": f"{identity}.key",
    }
    fields = {
        (f"{name}-data" if embed else name): (_base64(pki / file) if embed else str(pki / file))
        for name, file in files.items()
    }
    cluster = {name: value for name, value in fields.items() if name.startswith("certificate-authority")}
    user = {name: value for name, value in fields.items() if name not in cluster}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": layout.cgroup, "cluster": {"server": layout.api_url, **cluster}}],
        "users": [{"name": identity, "user": user}],
        "contexts": [{"name": layout.cgroup, "context": {"cluster": layout.cgroup, "user": identity}}],
        "current-context": layout.cgroup,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def _service_account_keys(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "service-account.key", key)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "service-account.pub").write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


def _name(common_name: str, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    # An hour back: a virtual machine's clock may step after a resume.
    return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + VALIDITY)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
