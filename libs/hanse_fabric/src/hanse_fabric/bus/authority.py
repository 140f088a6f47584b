"""Who may connect to the bus: keys of operator and accounts in one folder, credentials made from them.

Whoever holds the folder can make any credential; of the services only the coordinator has it, to enrol and to revoke
participants. It needs `account.seed`, `signer.seed` and `system.seed` of it, and may be forbidden to write there.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from hanse_fabric.bus.issuing import KEY_KINDS, Issuer
from hanse_fabric.bus.nkeys import KeyKind, KeyPair, decode_public
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.folders import no_address
from hanse_fabric.subjects import Role


class BusAuthority:
    """The keys in `folder`, each made at its first use, readable by their owner alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = no_address(folder, "authority folder")
        self._keys: dict[str, KeyPair] = {}
        self._issuer = Issuer(self._named)

    @property
    def system_account(self) -> str:
        return self._named("system").public

    @property
    def account(self) -> str:
        return self._named("account").public

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

    def leaf_credentials(self) -> Path:
        """The `.creds` file of leaf nodes of the hub's account, which may do what sites may do."""
        path = self.folder / "leaf.creds"
        write_durably(path, self._issuer.leaf_credentials(self._key("user-leaf", KeyKind.USER)))
        return path

    def leaf_system_credentials(self) -> Path:
        """The `.creds` file by which leaf nodes hear of changed claims, and can do nothing else."""
        path = self.folder / "leaf-system.creds"
        write_durably(path, self._issuer.leaf_system_credentials(self._key("user-leaf-system", KeyKind.USER)))
        return path

    def system_credentials(self) -> Path:
        """Credentials of the system account, which changes accounts' claims, in a file."""
        path = self.folder / "system.creds"
        write_durably(path, self._issuer.system_credentials())
        return path

    def participant_jwt(self, project: str, participant: str, bus_key: str) -> str:
        """A participant's token for the public key that it made itself.

        Raises:
            HanseError: INVALID_INPUT when `bus_key` is no NATS user key.
        """
        return self._issuer.participant_jwt(project, participant, bus_key)

    async def revoke(self, bus_key: str, *, url: str, timeout: float = 10.0, tls: ssl.SSLContext | None = None) -> None:
        """Void all tokens of a key, and have the servers drop its connections.

        Raises:
            HanseError: UNAVAILABLE when they do not confirm within `timeout` seconds.
        """
        decode_public(bus_key, KeyKind.USER)
        await self.ensure_revoked({bus_key: int(time.time())}, url=url, timeout=timeout, tls=tls)

    async def ensure_revoked(
        self, revoked: Mapping[str, int], *, url: str, timeout: float = 10.0, tls: ssl.SSLContext | None = None
    ) -> bool:
        """Have the account's claims, as the servers keep them, hold these revocations beside those that they hold.

        Args:
            revoked: unix seconds up to which a key's tokens are void, by public key.

        Returns:
            Whether they lacked any.

        Raises:
            HanseError: UNAVAILABLE when the servers do not confirm within `timeout` seconds.
        """
        from hanse_fabric.bus.claims import add_revocations

        wanted = self.revoked() | dict(revoked)
        return await add_revocations(url, self._issuer, wanted, timeout=timeout, tls=tls)

    def revoked(self) -> dict[str, int]:
        """Revocations that an early release has written here; since then the bus's servers keep them."""
        path = self.folder / "revoked.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _named(self, name: str) -> KeyPair:
        return self._key(name, KEY_KINDS[name])

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
                    hint="HANSE_BUS_AUTHORITY is a folder with account.seed, signer.seed and system.seed",
                ) from None
        return self._keys[name]
