"""Tokens and credentials made from the bus's private keys, without files and without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hanse_fabric.bus.jwt import account_jwt, claims_of, credentials, operator_jwt, read_credentials, user_jwt
from hanse_fabric.bus.nkeys import KeyKind, KeyPair, decode_public
from hanse_fabric.bus.permissions import permissions_for, permissions_of_leaf
from hanse_fabric.errors import HanseError
from hanse_fabric.subjects import Role

_ACCOUNT_NAME = "HANSE"
KEY_KINDS = {
    "operator": KeyKind.OPERATOR,
    "signer": KeyKind.OPERATOR,
    "system": KeyKind.ACCOUNT,
    "account": KeyKind.ACCOUNT,
}
"""The keys by name. `operator` is the root, which signs for `signer`; that one signs the accounts' claims."""

_FROM_THE_BEGINNING = 1
"""When claims that a server starts with were issued. A server keeps the newest that it ever saw, so what was pushed
since, with its revocations, stays; and the same keys give the same text."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issues what the bus asks for. `key` gives a private key by its name in KEY_KINDS, when it is needed: whoever
    holds `account`, `signer` and `system` can enrol and revoke without the root key."""

    key: Callable[[str], KeyPair]

    def operator_token(self) -> str:
        return operator_jwt(self.key("operator"), self.key("system").public, signers=[self.key("signer").public])

    def first_account_tokens(self, revoked: Mapping[str, int] | None = None) -> dict[str, str]:
        """The claims that a server starts with, by the accounts' public keys."""
        return {
            self.key("account").public: self.account_token(revoked or {}, issued_at=_FROM_THE_BEGINNING),
            self.key("system").public: account_jwt(
                self.key("signer"), self.key("system").public, "SYS", jetstream=False, issued_at=_FROM_THE_BEGINNING
            ),
        }

    def account_token(self, revoked: Mapping[str, int], *, issued_at: int | None = None) -> str:
        """The hub's account with these revocations (unix seconds by public key)."""
        public = self.key("account").public
        return account_jwt(
            self.key("signer"), public, _ACCOUNT_NAME, jetstream=True, revocations=revoked, issued_at=issued_at
        )

    def role_credentials(self, role: Role, user: KeyPair, kept: str = "") -> str:
        """The text of a service's `.creds` file: `kept` while it gives just the permissions that the role has now."""
        permissions = permissions_for(role)
        if kept and _grants(kept, self.key("account").public, user.public, permissions):
            return kept
        return credentials(user_jwt(self.key("account"), user.public, role.value, permissions), user)

    def leaf_credentials(self, user: KeyPair) -> str:
        """For a leaf node: it may do what sites may do, and nothing else."""
        return credentials(user_jwt(self.key("account"), user.public, "leaf", permissions_of_leaf()), user)

    def leaf_system_credentials(self, user: KeyPair) -> str:
        """For the system account of a leaf node: it hears of claims, and can ask for them."""
        granted = {
            "publish": ["$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", "$SYS.REQ.CLAIMS.PACK", "_INBOX.>", "$SYS._INBOX.>"],
            "subscribe": ["$SYS.REQ.CLAIMS.UPDATE", "$SYS.ACCOUNT.*.CLAIMS.UPDATE", "_INBOX.>", "$SYS._INBOX.>"],
        }
        return credentials(user_jwt(self.key("system"), user.public, "leaf-system", granted), user)

    def system_credentials(self) -> str:
        """For the system account, by a key that is made for this one use."""
        user = KeyPair.create(KeyKind.USER)
        return credentials(user_jwt(self.key("system"), user.public, "system", None), user)

    def participant_jwt(self, project: str, participant: str, bus_key: str) -> str:
        """A participant's token for the public key that it made itself.

        Raises:
            HanseError: INVALID_INPUT when `bus_key` is no NATS user key.
        """
        decode_public(bus_key, KeyKind.USER)
        permissions = permissions_for(Role.PARTICIPANT, project=project, participant=participant)
        return user_jwt(self.key("account"), bus_key, f"{project}/{participant}", permissions)


def revocations_of(token: str) -> dict[str, int]:
    """The revocations in an account's claims: unix seconds by public key."""
    found = claims_of(token).get("nats", {}).get("revocations", {})
    return {str(key): int(at) for key, at in found.items()}


def issued_at(token: str) -> int:
    """When claims were issued, unix seconds."""
    return int(claims_of(token).get("iat", 0))


def next_issue(*tokens: str) -> int:
    """A time of issue that is now, and after all of these tokens': servers keep the newest."""
    return max([int(time.time()), *(issued_at(token) + 1 for token in tokens)])


def _grants(text: str, account: str, user: str, permissions: Mapping[str, list[str]]) -> bool:
    try:
        token, key = read_credentials(text)
        claims = claims_of(token)
    except HanseError:
        return False
    nats = claims.get("nats", {})
    granted = {"publish": nats.get("pub", {}).get("allow"), "subscribe": nats.get("sub", {}).get("allow")}
    return claims.get("iss") == account and claims.get("sub") == key.public == user and granted == dict(permissions)
