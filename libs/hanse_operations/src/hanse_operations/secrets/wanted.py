"""The secrets of a deployment: what should be, as a function of what exists.

What exists and is right stays as it is; what is missing is made; credentials are made anew when their role's
permissions changed, certificates when their hosts changed or two thirds of their life are over. Keys are never changed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hanse_fabric.bus.issuing import KEY_KINDS, Issuer, keys_of_region, region_key, regions_of
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import private_pem
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.subjects import Role
from hanse_operations.bus.server import ASKS_EVERY
from hanse_operations.secrets.certificates import PemPair, is_fresh, issue, make_ca, serves
from hanse_operations.servers.seaweedfs import IDENTITIES, s3_identities

Secrets = Mapping[str, Mapping[str, bytes]]
"""Contents by secret (without the release's name before it) and key."""

BUS_ROLES = (
    Role.COORDINATOR, Role.AGGREGATOR, Role.MODEL_REGISTRY, Role.COMPENSATOR, Role.PROVISIONER, Role.BACKUP,
    Role.RESTORER,
)  # fmt: skip
SINCE = "credentials_since"
"""In the secret authority: when all services' credentials for the bus were last made anew (unix seconds)."""

ACCOUNTS_FOLDER = "/data/accounts"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What kind of deployment it is.

    Attributes:
        hosts: names and addresses that the bus is reached by; its certificate is for them.
        tls: whether to make that certificate.
        store_server: whether the object store is bundled, so that its identities are made here.
        compensator: whether the compensator is in this deployment.
        renew_credentials: whether to make all services' credentials for the bus anew, though those of before would do.
        regions: which regions there are beside the hub's own; those that were made before stay.
        accounts_folder: where the bus's servers keep accounts' claims.
        name: stands in the name of the certificate authority.
    """

    hosts: Sequence[str] = ()
    tls: bool = False
    store_server: bool = False
    compensator: bool = False
    regions: Sequence[str] = ()
    renew_credentials: bool = False
    accounts_folder: str = ACCOUNTS_FOLDER
    name: str = "hanse"


def names(wishes: Wishes) -> list[str]:
    """The secrets of such a deployment, in the order in which they are written: what others are made from first."""
    found = ["authority", "nats-accounts", *(f"bus-{role.value}" for role in BUS_ROLES)]
    found += ["bus-tls"] if wishes.tls else []
    found += [*(f"store-{name}" for name in IDENTITIES), "store-server"] if wishes.store_server else []
    found += ["registry-key", *(["compensator-key"] if wishes.compensator else []), "operator-key", "proxy-secret"]
    return found


def wanted(have: Secrets, wishes: Wishes, now: datetime) -> dict[str, dict[str, bytes]]:
    """What every secret should hold, in the order of `names`.

    Args:
        have: what exists; keys that nobody asked for stay.
        now: decides which certificates are too old.

    Raises:
        HanseError: INVALID_INPUT when a stored key cannot be read (the message never shows it), for `tls` without hosts
            and a region that has no name;
            CONFLICT when the keys of the bus are gone that it runs by, or are others.
    """
    if wishes.tls and not wishes.hosts:
        raise HanseError(ErrorCode.INVALID_INPUT, "--hosts: none is given, and a certificate needs at least one")
    made = {name: dict(have.get(name, {})) for name in names(wishes)}
    _bus(made, wishes, now)
    _same_account(made, have.get("nats-accounts", {}).get("account", b"").decode(errors="replace"))
    made["nats-accounts"] = _accounts(_issuer(made["authority"]), wishes.accounts_folder)
    if wishes.tls:
        _tls(made, wishes, now)
    if wishes.store_server:
        _store(made)
    made["registry-key"].setdefault("registry.pem", private_pem(Ed25519PrivateKey.generate()))
    if wishes.compensator:
        made["compensator-key"].setdefault("compensator.pem", private_pem(X25519PrivateKey.generate()))
    made["operator-key"].setdefault("api_key", make_api_key().text.encode())
    made["proxy-secret"].setdefault("proxy_secret", secrets.token_urlsafe(32).encode())
    return made


def _bus(made: dict[str, dict[str, bytes]], wishes: Wishes, now: datetime) -> None:
    authority = made["authority"]
    users = {f"user-{role.value}": KeyKind.USER for role in BUS_ROLES}
    of_regions = {name: kind for region in wishes.regions for name, kind in keys_of_region(region).items()}
    for name, kind in (KEY_KINDS | users | of_regions).items():
        authority.setdefault(f"{name}.seed", KeyPair.create(kind).seed.encode())
    issuer = _issuer(authority)
    for name in ("account", *map(region_key, issuer.regions)):
        authority[f"{name}.pub"] = _seed(authority, name).public.encode()
    if wishes.renew_credentials:
        authority[SINCE] = str(int(now.timestamp())).encode()
    for role in BUS_ROLES:
        secret = made[f"bus-{role.value}"]
        kept = "" if wishes.renew_credentials else secret.get("bus.creds", b"").decode(errors="replace")
        user = _seed(authority, f"user-{role.value}")
        secret["bus.creds"] = issuer.role_credentials(role, user, kept).encode()


def _same_account(made: Secrets, runs_by: str) -> None:
    """By another account the bus would find none of its streams, and every site's credentials would be void."""
    if runs_by and runs_by != _seed(made["authority"], "account").public:
        raise HanseError(
            ErrorCode.CONFLICT,
            "secret authority: its keys are not those of nats-accounts, by which the bus runs, or they are gone",
            hint="bring the secret authority back from a copy; to give up this hub's state and sites, remove both",
        )


def _accounts(issuer: Issuer, folder: str) -> dict[str, bytes]:
    """What NATS's configuration includes. The same keys give the same text, so that it need not start anew."""
    account = issuer.key("account").public
    preload = "".join(f"  {public}: {token}\n" for public, token in issuer.first_account_tokens().items())
    text = (
        f"operator: {issuer.operator_token()}\n"
        f"system_account: {issuer.key('system').public}\n"
        f"resolver {{\n  type: full\n  dir: {json.dumps(folder)}\n  allow_delete: false\n"
        f"  interval: {json.dumps(ASKS_EVERY)}\n}}\n"
        f"resolver_preload {{\n{preload}}}\n"
    )
    return {"accounts.conf": text.encode(), "account": account.encode()}


def _tls(made: dict[str, dict[str, bytes]], wishes: Wishes, now: datetime) -> None:
    authority, secret = made["authority"], made["bus-tls"]
    ca = PemPair(authority.get("ca.crt", b""), authority.get("ca.key", b""))
    if not ca.key or not is_fresh(ca.cert, now):
        ca = make_ca(wishes.name, now)
        authority |= {"ca.crt": ca.cert, "ca.key": ca.key}
    pair = PemPair(secret.get("tls.crt", b""), secret.get("tls.key", b""))
    if not is_fresh(pair.cert, now) or not serves(pair, ca, wishes.hosts):
        pair = issue(ca, wishes.hosts, now)
    secret |= {"ca.crt": ca.cert, "tls.crt": pair.cert, "tls.key": pair.key}


def _store(made: dict[str, dict[str, bytes]]) -> None:
    keys: dict[str, tuple[str, str]] = {}
    for name in IDENTITIES:
        secret = made[f"store-{name}"]
        secret.setdefault("access_key", f"{name}-{secrets.token_hex(6)}".encode())
        secret.setdefault("secret_key", secrets.token_urlsafe(32).encode())
        keys[name] = (secret["access_key"].decode(), secret["secret_key"].decode())
    made["store-server"]["s3.json"] = json.dumps(s3_identities(keys), indent=1).encode()


def _issuer(authority: Mapping[str, bytes]) -> Issuer:
    regions = regions_of(name.removesuffix(".seed") for name in authority if name.endswith(".seed"))
    return Issuer(lambda name: _seed(authority, name), lambda name: _seed(authority, name).public, regions)


def _seed(authority: Mapping[str, bytes], name: str) -> KeyPair:
    try:
        return KeyPair.from_seed(authority[f"{name}.seed"].decode(errors="replace"))
    except HanseError:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"secret authority: {name}.seed is no NATS seed",
            hint="bring back the right one from a copy: with another key every credential of this hub becomes void",
        ) from None
