"""NATS's JSON web tokens for operator mode: who may connect, and what to do there, signed offline."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hanse_fabric.bus.nkeys import KeyPair
from hanse_fabric.errors import invalid

Permissions = Mapping[str, list[str]]
"""`publish` and `subscribe`: lists of subjects that are allowed; all others are denied."""

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED = dict.fromkeys(("subs", "data", "payload"), -1)
_JETSTREAM = ("mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending")
NO_JETSTREAM = dict.fromkeys(_JETSTREAM, 0)
_EVERYTHING: dict[str, Any] = {
    **_UNLIMITED,
    **dict.fromkeys(("imports", "exports", "conn", "leaf", *_JETSTREAM), -1),
    "wildcards": True,
}


def operator_jwt(operator: KeyPair, system_account: str, *, signers: Sequence[str] = ()) -> str:
    """The operator's self-signed claim; `signers` are public keys that sign accounts' claims in its name."""
    claims: dict[str, Any] = {"type": "operator", "version": 2, "system_account": system_account}
    if signers:
        claims["signing_keys"] = list(signers)
    return _token(operator, operator.public, "hanse", claims, issued_at=1)


def account_jwt(
    operator: KeyPair,
    account: str,
    name: str,
    *,
    limits: Mapping[str, int],
    more: Mapping[str, Any] | None = None,
    revocations: Mapping[str, int] | None = None,
    issued_at: int | None = None,
) -> str:
    """An account.

    Args:
        operator: the operator's key, or one of its signers.
        limits: where not all is allowed (`NO_JETSTREAM`, or other numbers).
        more: further claims: exports, imports, signing keys.
        issued_at: unix seconds; None: now.
        revocations: public user keys with the time (unix seconds) up to which their credentials are void.
    """
    claims: dict[str, Any] = {"type": "account", "version": 2, "limits": _EVERYTHING | dict(limits), **(more or {})}
    if revocations:
        claims["revocations"] = dict(revocations)
    return _token(operator, account, name, claims, issued_at=issued_at)


def user_jwt(account: KeyPair, user: str, name: str, permissions: Permissions | None) -> str:
    """A user of an account; `permissions` None allows everything in the account."""
    claims: dict[str, Any] = {"type": "user", "version": 2, **_UNLIMITED}
    if permissions is not None:
        claims |= allowing(permissions)
    return _token(account, user, name, claims)


def allowing(permissions: Permissions) -> dict[str, Any]:
    """Permissions as tokens and templates have them."""
    return {"pub": {"allow": permissions["publish"]}, "sub": {"allow": permissions["subscribe"]}}


def scope(signer: str, role: str, permissions: Permissions, **limits: int) -> dict[str, Any]:
    """A signing key whose tokens give these permissions and limits, whatever they say.

    Args:
        permissions: may hold `{{tag(name)}}`, which is filled from each token's tags.
        limits: `subs`, `payload`, `data`.
    """
    template = allowing(permissions) | _UNLIMITED | limits
    return {"kind": "user_scope", "key": signer, "role": role, "template": template}


def scoped_jwt(
    signer: KeyPair, account: str, user: str, name: str, *, tags: Sequence[str], issued_at: int, expires: int
) -> str:
    """A user of `account` by one of its scoped keys: the scope says what it may, the tags whose it is."""
    claims = {"type": "user", "version": 2, "issuer_account": account, "tags": list(tags)}
    return _token(signer, user, name, claims, issued_at=issued_at, expires=expires)


def credentials(token: str, user: KeyPair) -> str:
    """The text of a `.creds` file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def read_credentials(text: str) -> tuple[str, KeyPair]:
    """The token and the key of a `.creds` file."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("---")]
    if len(lines) != 2:
        raise invalid("credentials", "(not shown)", "a NATS .creds file")
    return lines[0], KeyPair.from_seed(lines[1])


def claims_of(token: str) -> dict[str, Any]:
    """What a token says. Its signature is not checked: only for tokens of one's own.

    Raises:
        HanseError: INVALID_INPUT when it is none.
    """
    try:
        body = token.strip().split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise invalid("token", "(not shown)", "a NATS token")
    return found


def _token(
    issuer: KeyPair,
    subject: str,
    name: str,
    claims: Mapping[str, Any],
    *,
    issued_at: int | None = None,
    expires: int | None = None,
) -> str:
    body: dict[str, Any] = {
        "iat": int(time.time()) if issued_at is None else issued_at,
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": dict(claims),
    }
    if expires is not None:
        body["exp"] = expires
    digest = hashlib.sha256(_compact(body)).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_base64(_compact(_HEADER))}.{_base64(_compact(body))}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _compact(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
