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
"""`publish` and `subscribe`: lists of subjects that are allowed; all others are denied. `deny`, if there is one, takes
from `subscribe`."""

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED = dict.fromkeys(("subs", "data", "payload"), -1)


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
    jetstream: bool,
    revocations: Mapping[str, int] | None = None,
    issued_at: int | None = None,
) -> str:
    """An account.

    Args:
        operator: the operator's key, or one of its signers.
        issued_at: unix seconds; None: now.
        revocations: public user keys with the time (unix seconds) up to which their credentials are void.
    """
    limits: dict[str, Any] = {
        **_UNLIMITED,
        **dict.fromkeys(("imports", "exports", "conn", "leaf"), -1),
        "wildcards": True,
    }
    if jetstream:
        limits |= dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending"), -1)
    claims: dict[str, Any] = {"type": "account", "version": 2, "limits": limits}
    if revocations:
        claims["revocations"] = dict(revocations)
    return _token(operator, account, name, claims, issued_at=issued_at)


def user_jwt(account: KeyPair, user: str, name: str, permissions: Permissions | None) -> str:
    """A user of an account; `permissions` None allows everything in the account."""
    claims: dict[str, Any] = {"type": "user", "version": 2, **_UNLIMITED}
    if permissions is not None:
        claims["pub"] = {"allow": permissions["publish"]}
        claims["sub"] = {"allow": permissions["subscribe"]}
        if denied := permissions.get("deny"):
            claims["sub"]["deny"] = denied
    return _token(account, user, name, claims)


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


def _token(issuer: KeyPair, subject: str, name: str, claims: Mapping[str, Any], *, issued_at: int | None = None) -> str:
    body: dict[str, Any] = {
        "iat": int(time.time()) if issued_at is None else issued_at,
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": dict(claims),
    }
    digest = hashlib.sha256(_compact(body)).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_base64(_compact(_HEADER))}.{_base64(_compact(body))}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _compact(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
