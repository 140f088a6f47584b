"""A plain client of NATS, for commands that do one thing and end. Where services would wait and try again, it fails."""

from __future__ import annotations

import base64
import ssl
from typing import Any

import nats
from nats.aio.client import Client

from hanse_fabric.bus.addresses import servers_of
from hanse_fabric.bus.cancellation import keeps_cancellation
from hanse_fabric.bus.jwt import read_credentials


@keeps_cancellation
async def plain_client(url: str, credentials: str, *, tls: ssl.SSLContext | None = None, **options: Any) -> Client:
    """Connect, once.

    Args:
        url: as in `addresses`.
        credentials: text of a `.creds` file.
        options: further ones of `nats.connect`.

    Raises:
        HanseError: INVALID_INPUT for another kind of address, or what is no `.creds` file.
        OSError, TimeoutError, nats.errors.Error: it does not succeed.
    """
    token, key = read_credentials(credentials)
    return await nats.connect(
        servers_of(url),
        user_jwt_cb=lambda: bytearray(token.encode()),
        signature_cb=lambda nonce: base64.b64encode(key.sign(nonce.encode())),
        allow_reconnect=False,
        tls=tls,
        **options,
    )
