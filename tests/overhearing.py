"""A credential that only a test has: to hear all that is published on a bus, whoever may read it."""

from __future__ import annotations

import base64
from pathlib import Path

import nats
from nats.aio.client import Client

from hanse_fabric.bus.jwt import user_jwt
from hanse_fabric.bus.nkeys import KeyKind, KeyPair


async def with_all_rights(url: str, authority: Path) -> Client:
    """A connection that may read and write everything.

    Args:
        authority: folder of the bus's keys.
    """
    account = KeyPair.from_seed((authority / "account.seed").read_text())
    key = KeyPair.create(KeyKind.USER)
    token = user_jwt(account, key.public, "tap", None)
    return await nats.connect(
        url,
        user_jwt_cb=lambda: bytearray(token.encode()),
        signature_cb=lambda nonce: base64.b64encode(key.sign(nonce.encode())),
    )
