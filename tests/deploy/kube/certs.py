"""The certificates of a throwaway control plane."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SERVICE_ADDRESS = "10.96.0.1"  # of the service `kubernetes`: the first of the services' range


def write_certificates(folder: Path, address: str) -> None:
    """Writes ca, apiserver and admin (of the cluster) as NAME.crt and NAME.key, and sa.key, which signs tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    ca = _new_key(folder, "ca")
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throwaway")])
    signs = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    identity = x509.SubjectKeyIdentifier.from_public_key(ca.public_key())
    root = _builder(issuer, issuer, ca).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(signs, critical=True).add_extension(identity, critical=False)
    _write(folder, "ca", root.sign(ca, hashes.SHA256()))
    signer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity)

    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(ip)) for ip in {address, "127.0.0.1", SERVICE_ADDRESS}
    ]
    names += [
        x509.DNSName(name) for name in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    ]
    server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    builder = _builder(server, issuer, _new_key(folder, "apiserver")).add_extension(signer, critical=False)
    _write(
        folder,
        "apiserver",
        builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(ca, hashes.SHA256()),
    )

    admin = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
            x509.NameAttribute(NameOID.COMMON_NAME, "admin"),
        ]
    )
    builder = _builder(admin, issuer, _new_key(folder, "admin")).add_extension(signer, critical=False)
    _write(folder, "admin", builder.sign(ca, hashes.SHA256()))
    _new_key(folder, "sa")


def _new_key(folder: Path, name: str) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL  # the only form in which Kubernetes reads a key for tokens
    path = folder / f"{name}.key"
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return key


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
    )


def _write(folder: Path, name: str, certificate: x509.Certificate) -> None:
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
