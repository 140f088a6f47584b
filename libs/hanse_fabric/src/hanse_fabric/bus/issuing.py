"""Tokens and credentials made from the bus's private keys, without files and without a server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hanse_fabric.bus.jwt import (
    NO_JETSTREAM,
    account_jwt,
    claims_of,
    credentials,
    operator_jwt,
    read_credentials,
    scope,
    scoped_jwt,
    user_jwt,
)
from hanse_fabric.bus.nkeys import KeyKind, KeyPair, decode_public
from hanse_fabric.bus.permissions import permissions_for, permissions_of_leaf, scope_of
from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.names import HUB_REGION, SLUG
from hanse_fabric.subjects import DOORS_OF_ALL, TELLS_OF_ALL, Role

_ACCOUNT_NAME = "HANSE"
_SLUG = re.compile(SLUG)
KEY_KINDS = {
    "operator": KeyKind.OPERATOR,
    "signer": KeyKind.OPERATOR,
    "system": KeyKind.ACCOUNT,
    "account": KeyKind.ACCOUNT,
    "region-hub": KeyKind.ACCOUNT,
    "region-hub-signer": KeyKind.ACCOUNT,
}
"""The keys by name. `operator` is the root, which signs for `signer`; that one signs the accounts' claims. `account` is
the hub's own, of services alone. Each region has an account of its sites and a signing key whose tokens can give a
site's rights and nothing else; `hub` is the region of those who connect to the hub itself."""

EVERYBODY = "*"
"""Among revocations: all users of the account."""

TOKEN_S = 3600
"""Seconds that a site's token lasts; the site renews it at half of them."""

FOR_GOOD = 1 << 32
"""Up to when (unix seconds, in the year 2106) the tokens of a key are void that is revoked for good, not those tokens
alone that it has. Leaf nodes' tokens have no end, so their revocations have none either."""

_SITE_LIMITS = {"subs": 8, "payload": 512 << 10, "data": -1}
_CONNECTIONS = 200_000
_ANSWER_S = 30
"""Within how many seconds a door must answer; a later answer vanishes."""

_FROM_THE_BEGINNING = 1
"""When claims that a server starts with were issued. A server keeps the newest that it ever saw, so what was pushed
since, with its revocations, stays; and the same keys give the same text."""


def region_key(region: str) -> str:
    """The name of a region's account among the keys."""
    return f"region-{region}"


def regions_of(keys: Iterable[str]) -> tuple[str, ...]:
    """The regions that have a signing key among these (names without `.seed`): HUB_REGION, and the others by name."""
    signers = (key.removeprefix("region-") for key in keys if key.startswith("region-") and key.endswith("-signer"))
    return (HUB_REGION, *sorted({each.removesuffix("-signer") for each in signers} - {HUB_REGION}))


def keys_of_region(region: str) -> dict[str, KeyKind]:
    """The keys that a region has of its own: its account's, the one that signs its sites' tokens, its leaf nodes'.

    Raises:
        HanseError: INVALID_INPUT for what is no name of a region.
    """
    if not _SLUG.fullmatch(region) or region.endswith("-signer"):
        raise invalid("region", region, "a name of small letters, digits and hyphens")
    account = region_key(region)
    return {account: KeyKind.ACCOUNT, f"{account}-signer": KeyKind.ACCOUNT, f"user-leaf-{region}": KeyKind.USER}


def kind_of(name: str) -> KeyKind:
    """The kind of a key by its name."""
    return KEY_KINDS.get(name, KeyKind.ACCOUNT if name.startswith("region-") else KeyKind.USER)


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issues what the bus asks for. `key` gives a private key by its name in KEY_KINDS, when it is needed: whoever
    holds the regions' signers, `signer` and `system` can enrol and revoke, without the root key and the accounts'.

    Attributes:
        key: a private key by its name.
        public: a public key by its name, where the private one may be elsewhere.
        regions: whose accounts there are.
    """

    key: Callable[[str], KeyPair]
    public: Callable[[str], str]
    regions: tuple[str, ...] = (HUB_REGION,)

    def operator_token(self) -> str:
        return operator_jwt(self.key("operator"), self.public("system"), signers=[self.public("signer")])

    def first_account_tokens(self, revoked: Mapping[str, int] | None = None) -> dict[str, str]:
        """The claims that a server starts with, by the accounts' public keys."""
        made = {"account": revoked or {}, "system": {}} | {region_key(region): {} for region in self.regions}
        return {
            self.public(name): self.account_token(name, voided, issued_at=_FROM_THE_BEGINNING)
            for name, voided in made.items()
        }

    def account_token(self, name: str, revoked: Mapping[str, int], *, issued_at: int | None = None) -> str:
        """The claims of an account, by its key's name, with these revocations (unix seconds by public key)."""
        title, limits, more = self._account(name)
        return account_jwt(
            self.key("signer"), self.public(name), title, limits=limits, more=more, revocations=revoked,
            issued_at=issued_at,
        )  # fmt: skip

    def _account(self, name: str) -> tuple[str, dict[str, int], dict[str, Any]]:
        """Name, limits and further claims of an account."""
        if name == "system":
            return "SYS", NO_JETSTREAM, {}
        if name == "account":
            return _ACCOUNT_NAME, {}, {"exports": _EXPORTS}
        if not name.startswith(region_key("")):
            raise invalid("account", name, "account, system or region-NAME")
        region = name.removeprefix(region_key(""))
        hub = self.public("account")
        imports = [
            _shared("doors", DOORS_OF_ALL.replace(".>", f".{region}.>"), "service", account=hub),
            _shared("tells", TELLS_OF_ALL.replace(".>", f".{region}.>"), "stream", account=hub),
        ]
        signer = scope(self.public(f"{name}-signer"), "site", scope_of(region), **_SITE_LIMITS)
        limits = NO_JETSTREAM | {"exports": 0, "imports": len(imports), "conn": _CONNECTIONS}
        return f"SITES-{region}", limits, {"imports": imports, "signing_keys": [signer]}

    def role_credentials(self, role: Role, user: KeyPair, kept: str = "") -> str:
        """The text of a service's `.creds` file: `kept` while it gives just the permissions that the role has now."""
        permissions = permissions_for(role)
        if kept and _grants(kept, self.public("account"), user.public, permissions):
            return kept
        return credentials(user_jwt(self.key("account"), user.public, role.value, permissions), user)

    def leaf_key(self, region: str, name: str, number: int = 1) -> KeyPair:
        """The key of a leaf node, by the region, its name and how many it has had: nothing needs to be kept of it."""
        return self.key(f"user-leaf-{region}").derived(KeyKind.USER, f"leaf/{region}/{name}/{number}")

    def leaf_credentials(self, region: str, user: KeyPair) -> str:
        """For a leaf node of a region: it may do what that region's sites may do, and nothing else."""
        return credentials(
            user_jwt(self.key(region_key(region)), user.public, f"leaf-{region}", permissions_of_leaf(region)), user
        )  # fmt: skip

    def leaf_system_credentials(self, user: KeyPair) -> str:
        """For the system account of a leaf node, by the same key: it hears of claims, and can ask for them."""
        granted = {
            "publish": ["$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", "$SYS.REQ.CLAIMS.PACK", "_INBOX.>", "$SYS._INBOX.>"],
            "subscribe": ["$SYS.REQ.CLAIMS.UPDATE", "$SYS.ACCOUNT.*.CLAIMS.UPDATE", "_INBOX.>", "$SYS._INBOX.>"],
        }
        return credentials(user_jwt(self.key("system"), user.public, "leaf-system", granted), user)

    def system_credentials(self) -> str:
        """For the system account, by a key that is made for this one use."""
        user = KeyPair.create(KeyKind.USER)
        return credentials(user_jwt(self.key("system"), user.public, "system", None), user)

    def participant_jwt(
        self, project: str, participant: str, bus_key: str, *, region: str = HUB_REGION, now: int | None = None
    ) -> str:
        """A participant's token for the public key that it made itself, good for TOKEN_S from `now` (unix seconds).

        Raises:
            HanseError: INVALID_INPUT when `bus_key` is no NATS user key, a name is none (a tag is not escaped, so
                `*` would grant all), or the region is not known.
        """
        decode_public(bus_key, KeyKind.USER)
        for field, value in {"project": project, "participant": participant}.items():
            if not _SLUG.fullmatch(value):
                raise invalid(field, value, "a name of small letters, digits and hyphens")
        if region not in self.regions:
            raise invalid("region", region, f"one of {', '.join(self.regions)}")
        account, at = region_key(region), int(time.time()) if now is None else now
        tags = [f"region:{region}", f"project:{project}", f"site:{participant}"]
        return scoped_jwt(
            self.key(f"{account}-signer"), self.public(account), bus_key, f"{project}/{participant}",
            tags=tags, issued_at=at, expires=at + TOKEN_S,
        )  # fmt: skip


def _shared(name: str, subject: str, kind: str, **more: Any) -> dict[str, Any]:
    """An export, or an import under the same name."""
    return {"name": name, "subject": subject, "type": kind, **more}


_EXPORTS = [
    _shared("doors", DOORS_OF_ALL, "service", response_type="Singleton", response_threshold=_ANSWER_S * 1_000_000_000),
    _shared("tells", TELLS_OF_ALL, "stream"),
]


def region_of(token: str) -> str | None:
    """The region that a site's token is for; None: it is one of release 0.1.0, of the hub's own account."""
    tags = dict(str(tag).partition(":")[::2] for tag in claims_of(token).get("nats", {}).get("tags", []))
    return tags.get("region")


def expires_at(token: str) -> int | None:
    """When a token ends, unix seconds; None: never."""
    end = claims_of(token).get("exp")
    return None if end is None else int(end)


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
