"""From the single account of release 0.1.0 to accounts of regions: on a running bus, with everybody connected."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import account_jwt, credentials, user_jwt
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import HanseError
from hanse_fabric.subjects import DOORS, RESULT, Door, Role
from servers import NatsServer

OWN = RESULT.of(project="p", run="r", step="s", participant="old")


async def _echo(_: str, data: bytes) -> bytes:
    return data


async def test_the_coordinators_push_opens_the_doors_and_disconnects_nobody(tmp_path: Path) -> None:
    authority = BusAuthority(tmp_path / "authority")
    signer, account = (KeyPair.from_seed((authority.folder / f"{name}.seed").read_text()) for name in _made(authority))
    (tmp_path / "accounts").mkdir()
    before = account_jwt(signer, account.public, "HANSE", limits={}, issued_at=1)
    (tmp_path / "accounts" / f"{account.public}.jwt").write_text(before)
    server = NatsServer(tmp_path, authority=authority)
    server.start()
    try:
        await server.provision()
        hub = await server.connect(Role.COORDINATOR)
        await hub.serve(DOORS[Door.RESULT].wildcard(), _echo, group="g")
        key = KeyPair.create(KeyKind.USER)
        granted = {"publish": [OWN], "subscribe": ["_INBOX.p.old.>"]}
        old = await NatsBus.connect(
            server.url, "p.old", creds=credentials(user_jwt(account, key.public, "p/old", granted), key)
        )
        assert await old.publish(OWN, b"before") == 1
        new, _ = await server.enrol("p", "new")
        door = DOORS[Door.RESULT].of(region="hub", project="p", participant="new")
        with pytest.raises(HanseError):
            await new.request(door, b"x", timeout=1)
        assert await authority.settle({}, url=server.url)
        assert await new.request(door, b"x", timeout=60) == b"x"
        assert not await authority.settle({}, url=server.url)
        assert await old.publish(OWN, b"after") == 2
        assert [bus._connection.generation for bus in (old, new, hub)] == [0, 0, 0]
        for bus in (old, new, hub):
            await bus.close()
    finally:
        server.kill()


def _made(authority: BusAuthority) -> tuple[str, str]:
    """The keys' names, once they are there."""
    authority.account_tokens()
    return "signer", "account"
