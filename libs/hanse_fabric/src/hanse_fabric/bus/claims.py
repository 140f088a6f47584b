"""Pushing an account's claims to a running nats-server, over its system account."""

from __future__ import annotations

import base64
import json
import ssl

import nats
import nats.errors

from hanse_fabric.bus.jwt import read_credentials
from hanse_fabric.errors import ErrorCode, HanseError


async def push_account(
    url: str, system_credentials: str, token: str, *, timeout: float, tls: ssl.SSLContext | None = None
) -> None:
    """Have the server take new claims for an account.

    Args:
        system_credentials: text of a `.creds` file of the system account.

    Raises:
        HanseError: UNAVAILABLE when it cannot be reached or does not confirm.
    """
    jwt, key = read_credentials(system_credentials)
    try:
        connection = await nats.connect(
            url,
            user_jwt_cb=lambda: bytearray(jwt.encode()),
            signature_cb=lambda nonce: base64.b64encode(key.sign(nonce.encode())),
            connect_timeout=int(max(1, timeout)),
            allow_reconnect=False,
            tls=tls,
        )
        try:
            reply = await connection.request("$SYS.REQ.CLAIMS.UPDATE", token.encode(), timeout=timeout)
        finally:
            await connection.close()
    except (OSError, nats.errors.Error) as error:
        raise HanseError(ErrorCode.UNAVAILABLE, f"bus: the account's claims could not be pushed: {error}") from None
    answer = json.loads(reply.data)
    if answer.get("data", {}).get("code") != 200:
        raise HanseError(ErrorCode.UNAVAILABLE, f"bus: the account's claims were refused: {reply.data.decode()[:300]}")
