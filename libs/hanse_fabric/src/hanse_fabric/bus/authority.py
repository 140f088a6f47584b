"""Who may connect to the bus: keys of operator and accounts in one folder, credentials made from them.

Whoever holds the folder can make any credential; of the services only the coordinator has it, to enrol and to revoke
participants.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from pathlib import Path

from hanse_fabric.bus.jwt import account_jwt, credentials, operator_jwt, user_jwt
from hanse_fabric.bus.nkeys import KeyKind, KeyPair, decode_public
from hanse_fabric.bus.permissions import permissions_for
from hanse_fabric.subjects import Role

_ACCOUNT_NAME = "HANSE"


class BusAuthority:
    """The keys in `folder`, made at first use, readable by their owner alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._operator = self._key("operator", KeyKind.OPERATOR)
        self._system = self._key("system", KeyKind.ACCOUNT)
        self._account = self._key("account", KeyKind.ACCOUNT)

    @property
    def system_account(self) -> str:
        return self._system.public

    @property
    def account(self) -> str:
        return self._account.public

    def operator_token(self) -> str:
        return operator_jwt(self._operator, self.system_account)

    def account_tokens(self) -> dict[str, str]:
        """The accounts' claims by public key, for the server's resolver."""
        hub = account_jwt(self._operator, self.account, _ACCOUNT_NAME, jetstream=True, revocations=self._revoked())
        system = account_jwt(self._operator, self.system_account, "SYS", jetstream=False)
        return {self.account: hub, self.system_account: system}

    def service_credentials(self, role: Role) -> Path:
        """The `.creds` file of a service, made at first use and anew when its permissions have changed."""
        user = self._key(f"user-{role.value}", KeyKind.USER)
        token = user_jwt(self._account, user.public, role.value, permissions_for(role))
        path = self.folder / f"{role.value}.creds"
        write_secret(path, credentials(token, user))
        return path

    def system_credentials(self) -> Path:
        """Credentials of the system account, which changes accounts' claims."""
        user = self._key("user-system", KeyKind.USER)
        path = self.folder / "system.creds"
        write_secret(path, credentials(user_jwt(self._system, user.public, "system", None), user))
        return path

    def participant_jwt(self, project: str, participant: str, bus_key: str) -> str:
        """A participant's token for the public key that it made itself.

        Raises:
            HanseError: INVALID_INPUT when `bus_key` is no NATS user key.
        """
        decode_public(bus_key, KeyKind.USER)
        permissions = permissions_for(Role.PARTICIPANT, project=project, participant=participant)
        return user_jwt(self._account, bus_key, f"{project}/{participant}", permissions)

    async def revoke(self, bus_key: str, *, url: str, timeout: float = 10.0, tls: ssl.SSLContext | None = None) -> None:
        """Void all tokens of a key, and have the server drop its connections.

        Raises:
            HanseError: UNAVAILABLE when the server does not confirm within `timeout` seconds.
        """
        from hanse_fabric.bus.claims import push_account

        decode_public(bus_key, KeyKind.USER)
        revoked = self._revoked() | {bus_key: int(time.time())}
        write_secret(self.folder / "revoked.json", json.dumps(revoked))
        system = self.system_credentials().read_text()
        await push_account(url, system, self.account_tokens()[self.account], timeout=timeout, tls=tls)

    def _revoked(self) -> dict[str, int]:
        path = self.folder / "revoked.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def _key(self, name: str, kind: KeyKind) -> KeyPair:
        path = self.folder / f"{name}.seed"
        if not path.exists():
            write_secret(path, KeyPair.create(kind).seed)
        return KeyPair.from_seed(path.read_text())


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
