"""A certificate authority of the deployment's own, and the bus servers' certificate: for hubs without cert-manager."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=730)
_RENEWED_AFTER = 2 / 3
_CLOCKS = timedelta(minutes=10)
"""Validity begins so much earlier, for machines whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class PemPair:
    """A certificate and its private key as PEM text; `repr` shows neither."""

    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        return "PemPair(...)"


def make_ca(name: str, now: datetime) -> PemPair:
    """A self-signed authority for servers of this deployment."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{name} CA")
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(subject, subject, key.public_key(), now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue(ca: PemPair, hosts: Sequence[str], now: datetime) -> PemPair:
    """A certificate for servers that are reached by these names or addresses, and connect to each other by it."""
    authority = x509.load_pem_x509_certificate(ca.cert)
    signer = _private(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(hosts[0][:64]), authority.subject, key.public_key(), now, SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pair(certificate, key)


def is_fresh(cert: bytes, now: datetime) -> bool:
    """Whether a certificate can be read and is not past two thirds of its life."""
    try:
        read = x509.load_pem_x509_certificate(cert)
    except ValueError:
        return False
    begin, end = read.not_valid_before_utc, read.not_valid_after_utc
    return now < begin + (end - begin) * _RENEWED_AFTER


def serves(pair: PemPair, ca: PemPair, hosts: Sequence[str]) -> bool:
    """Whether the certificate is by this authority, for just these hosts, and goes with its key."""
    try:
        read = x509.load_pem_x509_certificate(pair.cert)
        read.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.cert))
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        public = _private(pair.key).public_key()
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound, x509.InvalidVersion):
        return False
    return set(names) == {_general(host) for host in hosts} and _spki(public) == _spki(read.public_key())


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key on an elliptic curve")
    return key


def _spki(public: object) -> bytes:
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise TypeError("not a key on an elliptic curve")
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + life)
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> PemPair:
    return PemPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
