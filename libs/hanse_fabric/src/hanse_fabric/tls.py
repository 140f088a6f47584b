"""TLS contexts for every link: one-sided, and mutual where a certificate of one's own, or a CA for clients, is set.

A context's own certificate and the CA that it trusts are read again when their files were renewed (`load_renewed`), for
connections from then on.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from pathlib import Path
from weakref import WeakKeyDictionary

from hanse_fabric.errors import ErrorCode, HanseError

_LOG = logging.getLogger(__name__)
_loaded: WeakKeyDictionary[ssl.SSLContext, tuple[Path, Path, int]] = WeakKeyDictionary()
_trusted: WeakKeyDictionary[ssl.SSLContext, tuple[Path, int]] = WeakKeyDictionary()


def load_renewed() -> bool:
    """Load the certificates, and the CAs to trust, whose files have changed into the contexts that have them; whether
    there were any. Where a file and its key do not fit (one is written already, the other not), the context keeps what
    it has until they do. A CA that was trusted stays so beside the new one until the process ends.
    """
    renewed = False
    for context, (cert, key, before) in list(_loaded.items()):
        try:
            written = _written(cert, key)
            if written == before:
                continue
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            _LOG.warning("certificate %s was renewed and cannot be loaded yet: %s", cert, _reason(error))
            continue
        _loaded[context] = cert, key, written
        renewed = True
        _LOG.info("certificate %s was renewed and is loaded", cert)
    for context, (ca, before) in list(_trusted.items()):
        try:
            written = _written(ca)
            if written == before:
                continue
            context.load_verify_locations(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            _LOG.warning("CA %s was renewed and cannot be loaded yet: %s", ca, _reason(error))
            continue
        _trusted[context] = ca, written
        renewed = True
        _LOG.info("CA %s was renewed and is trusted, beside the former one", ca)
    return renewed


def _written(*files: Path) -> int:
    return max(file.stat().st_mtime_ns for file in files)


def fingerprint(pem: str) -> str:
    """Of a certificate: `sha256:` and the SHA-256 of its DER form, in hexadecimal.

    Raises:
        HanseError: INVALID_INPUT where the text does not begin with a certificate.
    """
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    head, found, _ = pem.strip().partition(end)
    try:
        if not head.startswith(begin) or not found:
            raise ValueError("no certificate")
        der = ssl.PEM_cert_to_DER_cert(f"{head}{end}\n")
    except ValueError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"certificate: not in PEM form ({error})") from None
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def client_context(ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """A context for connecting to a server, whose name and chain are always checked.

    Args:
        ca: PEM file of the CA to trust; None: the system's.
        cert, key: PEM files of a certificate of one's own, for mutual TLS; both or neither.

    Raises:
        HanseError: INVALID_INPUT naming the file that cannot be used.
    """
    if ca is None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    else:
        # Only the CA that was named is trusted: not the system's beside it.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_ca(context, ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_pair(context, cert, key)
    return context


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """A context for serving.

    Args:
        cert, key: PEM files of the server's certificate (chain) and key.
        client_ca: PEM file of a CA; if given, only clients with its certificates are let in (mutual TLS).

    Raises:
        HanseError: INVALID_INPUT naming the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_pair(context, cert, key)
    if client_ca is not None:
        _load_ca(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    try:
        written = _written(ca)
        context.load_verify_locations(cafile=ca)
        _trusted[context] = ca, written
    except (OSError, ssl.SSLError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"CA file {ca}: {_reason(error)}") from None


def _load_pair(context: ssl.SSLContext, cert: Path | None, key: Path | None) -> None:
    if cert is None and key is None:
        return
    if cert is None or key is None:
        raise HanseError(ErrorCode.INVALID_INPUT, "TLS: a certificate and its key belong together; only one is set")
    try:
        written = _written(cert, key)
        context.load_cert_chain(cert, key)
        _loaded[context] = cert, key, written
    except (OSError, ssl.SSLError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"certificate {cert} with key {key}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key is that of another certificate"
        return f"not a usable PEM file ({error.reason or error})"
    return error.strerror or str(error)
