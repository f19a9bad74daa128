"""Who may speak to the server: its certificate, the bearer token, and the kubeconfig that holds both.

Plain HTTP would not do: kubectl drops every credential over it, and an open API on loopback lets any user of the machine run commands as
the one who started it.
"""

import base64
import datetime
import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS = 3650
_RENEW_DAYS = 30


@dataclass(frozen=True)
class Access:
    """The token, and where certificate and key lie."""

    token: str
    certificate: Path
    key: Path

    @classmethod
    def load(cls, state: Path, host: str = "127.0.0.1") -> "Access":
        """What the state folder holds; made where it is missing, runs out or is not for `host`, an IP address. The folder becomes
        0700, its files 0600.
        """
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        state.chmod(0o700)
        token, certificate, key = state / "token", state / "api.crt", state / "api.key"
        if not token.exists():
            write_private(token, secrets.token_urlsafe(32).encode())
        if not (certificate.exists() and key.exists()) or not _is_usable(certificate, host):
            _make_certificate(certificate, key, host)
        return cls(token.read_text(), certificate, key)

    def write_kubeconfig(self, path: Path, url: str, namespace: str = "default") -> None:
        """A kubeconfig with one context, `kvroll-local`. It holds the token: 0600."""
        name = "kvroll-local"
        cluster = {"server": url, "certificate-authority-data": _base64(self.certificate.read_bytes())}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        }
        write_private(path, yaml.safe_dump(made, sort_keys=False).encode())


def write_private(path: Path, data: bytes) -> None:
    """Replaces a file at once; nobody else may read it at any moment."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    draft.replace(path)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _is_usable(certificate: Path, host: str) -> bool:
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lasts = found.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=_RENEW_DAYS)
    return lasts and ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)


def _make_certificate(certificate: Path, key: Path, host: str) -> None:
    """A certificate for loopback, signed by itself: the kubeconfig trusts exactly this one."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kvroll embedded API server")])
    addresses = sorted({"127.0.0.1", "::1", host})
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses)]
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        # Python from 3.13 on verifies strictly: a root of trust must say that it is one, and what its key is for.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(secret.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(secret.public_key()), critical=False)
        .sign(secret, hashes.SHA256())
    )
    no_password = serialization.NoEncryption()
    write_private(key, secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password))
    write_private(certificate, made.public_bytes(serialization.Encoding.PEM))


def _key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
