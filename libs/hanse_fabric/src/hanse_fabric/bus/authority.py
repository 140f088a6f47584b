"""Who may connect to the bus: keys of operator and accounts in one folder, credentials made from them.

Whoever holds the folder can make any credential. Of the services only the coordinator has some of it, to enrol and to
revoke participants: `region-*-signer.seed`, `signer.seed` and `system.seed`, and the accounts' public keys (`*.pub`).
It may be forbidden to write there.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from hanse_fabric.bus.issuing import EVERYBODY, Issuer, keys_of_region, kind_of, region_key, regions_of
from hanse_fabric.bus.nkeys import KeyKind, KeyPair, decode_public
from hanse_fabric.clock import Clock
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.folders import no_address
from hanse_fabric.names import HUB_REGION
from hanse_fabric.subjects import Role


class BusAuthority:
    """The keys in `folder`, each made at its first use, readable by their owner alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = no_address(folder, "authority folder")
        self._keys: dict[str, KeyPair] = {}

    @property
    def _issuer(self) -> Issuer:
        return Issuer(self._named, self._public, self.regions)

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions that have an account here: HUB_REGION, and those that `add_region` made."""
        return regions_of(path.stem for path in self.folder.glob("region-*.seed"))

    def add_region(self, region: str) -> None:
        """Make the keys of a region, where there are none. Its account is the servers' at the next `settle`.

        Raises:
            HanseError: INVALID_INPUT for what is no name.
        """
        for name, kind in keys_of_region(region).items():
            self._key(name, kind)

    @property
    def system_account(self) -> str:
        return self._public("system")

    @property
    def account(self) -> str:
        return self._public("account")

    def account_of(self, region: str) -> str:
        """The public key of a region's account."""
        return self._public(region_key(region))

    def operator_token(self) -> str:
        return self._issuer.operator_token()

    def account_tokens(self) -> dict[str, str]:
        """The accounts' claims by public key, for a server that has none yet."""
        return self._issuer.first_account_tokens(self.revoked())

    def service_credentials(self, role: Role) -> Path:
        """The `.creds` file of a service, made at first use and anew when its permissions have changed."""
        path = self.folder / f"{role.value}.creds"
        kept = path.read_text() if path.exists() else ""
        text = self._issuer.role_credentials(role, self._key(f"user-{role.value}", KeyKind.USER), kept)
        if text != kept:
            write_durably(path, text)
        return path

    def renew_services(self) -> int:
        """Have all services' credentials made anew at their next use; returns since when they are (unix seconds)."""
        since = int(time.time())
        for role in Role:
            (self.folder / f"{role.value}.creds").unlink(missing_ok=True)
        return since

    def leaf_key(self, region: str, name: str, number: int = 1) -> str:
        """The public key of a leaf node, the `number`th that it has; `name` empty: the one that all leaf nodes of a
        region shared before they had keys of their own."""
        return self._leaf_key(region, name, number).public

    def leaf_credentials(self, region: str, name: str, number: int = 1) -> tuple[str, str]:
        """The texts of a leaf node's two `.creds` files: by the one it may do what its region's sites may do, by the
        other it hears of changed claims, and can do nothing else."""
        key = self._leaf_key(region, name, number)
        return self._issuer.leaf_credentials(region, key), self._issuer.leaf_system_credentials(key)

    def _leaf_key(self, region: str, name: str, number: int) -> KeyPair:
        if not name:
            return self._key(f"user-leaf-{region}", KeyKind.USER)
        return self._issuer.leaf_key(region, name, number)

    def system_credentials(self) -> Path:
        """Credentials of the system account, which changes accounts' claims, in a file."""
        path = self.folder / "system.creds"
        write_durably(path, self._issuer.system_credentials())
        return path

    def participant_jwt(self, project: str, participant: str, bus_key: str, *, region: str = HUB_REGION) -> str:
        """A participant's token for the public key that it made itself, good for an hour.

        Raises:
            HanseError: INVALID_INPUT when `bus_key` is no NATS user key, or there is no such region.
        """
        return self._issuer.participant_jwt(project, participant, bus_key, region=region)

    async def revoke(self, bus_key: str, *, url: str, timeout: float = 10.0, tls: ssl.SSLContext | None = None) -> None:
        """Void all tokens of a key, and have the servers drop its connections.

        Raises:
            HanseError: UNAVAILABLE when they do not confirm within `timeout` seconds.
        """
        decode_public(bus_key, KeyKind.USER)
        await self.settle({bus_key: int(time.time())}, url=url, timeout=timeout, tls=tls)

    async def leaves_of(
        self, region: str, *, url: str, timeout: float = 10.0, tls: ssl.SSLContext | None = None
    ) -> list[str]:
        """Names of the leaf nodes of a region that are connected to the servers, sorted.

        Raises:
            HanseError: UNAVAILABLE when no server answers within `timeout` seconds.
        """
        from hanse_fabric.bus.claims import leaves_of

        return await leaves_of(url, self._issuer, self.account_of(region), timeout=timeout, tls=tls)

    async def keep_few_connections(self, clock: Clock, *, url: str, tls: ssl.SSLContext | None = None) -> None:
        """End what a site's key has of connections beyond a few, until cancelled."""
        from hanse_fabric.bus.crowding import Crowding

        await Crowding(url, self._issuer, clock, tls).run()

    async def settle(
        self,
        revoked: Mapping[str, int],
        *,
        regions: Mapping[str, str] | None = None,
        url: str,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> bool:
        """Have the accounts' claims, as the servers keep them, be those of this release, with these revocations beside
        those that they hold.

        Args:
            revoked: unix seconds up to which a key's tokens are void, by public key.
            regions: where a key has tokens, by public key; one that is not here is void in all accounts.

        Returns:
            Whether they lacked anything.

        Raises:
            HanseError: UNAVAILABLE when the servers do not confirm within `timeout` seconds.
        """
        from hanse_fabric.bus.claims import settle

        listed = self.revoked() | dict(revoked)
        return await settle(url, self._issuer, listed, regions=regions, timeout=timeout, tls=tls)

    async def end_tokens_of_before(
        self, since: int, *, url: str, timeout: float = 10.0, tls: ssl.SSLContext | None = None
    ) -> None:
        """Void every token of the hub's own account that was issued before `since` (unix seconds): those that sites got
        of release 0.1.0, and those of services, whose credentials must be made anew first.

        Raises:
            HanseError: UNAVAILABLE when the servers do not confirm within `timeout` seconds.
        """
        await self.settle({EVERYBODY: since - 1}, url=url, timeout=timeout, tls=tls)

    def revoked(self) -> dict[str, int]:
        """Revocations that an early release has written here; since then the bus's servers keep them."""
        path = self.folder / "revoked.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _named(self, name: str) -> KeyPair:
        return self._key(name, kind_of(name))

    def _public(self, name: str) -> str:
        path = self.folder / f"{name}.pub"
        return path.read_text().strip() if path.exists() else self._named(name).public

    def _key(self, name: str, kind: KeyKind) -> KeyPair:
        if name not in self._keys:
            path = self.folder / f"{name}.seed"
            try:
                if not path.exists():
                    self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                    write_durably(path, KeyPair.create(kind).seed)
                self._keys[name] = KeyPair.from_seed(path.read_text())
            except OSError as error:
                raise HanseError(
                    ErrorCode.INVALID_INPUT,
                    f"authority folder {self.folder}: {path.name} is not there, or cannot be read: {error.strerror}",
                    hint="HANSE_BUS_AUTHORITY is a folder with signer.seed, system.seed and a signer of each region",
                ) from None
        return self._keys[name]
