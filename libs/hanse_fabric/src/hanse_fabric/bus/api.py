"""Requests to JetStream's own interface, and its errors in the terms of the catalogue."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hanse_fabric.bus.connection import Connection
from hanse_fabric.errors import ErrorCode, HanseError

_FOR_NOW = frozenset({10009, 10118, 10119, 10158, 10167, 10194, 10195})
"""What passes by itself, beside all errors 503: no leader yet, stream or consumer offline, a message of this id is being
agreed on, too many at once (server/errors.json of NATS)."""


async def ask(connection: Connection, subject: str, request: bytes, deadline: float, what: str) -> dict[str, Any]:
    """As `ask_or_none`, where no error says that there is nothing."""
    return await ask_or_none(connection, subject, request, deadline, what) or {}


async def ask_or_none(
    connection: Connection, subject: str, request: bytes, deadline: float, what: str, *, absent: int = 0
) -> dict[str, Any] | None:
    """The answer to a request; asked again while a cluster elects who answers it. None for the error `absent`.

    Args:
        deadline: event loop's time.
        what: is being done, for errors.

    Raises:
        HanseError: FORBIDDEN, NOT_FOUND, UNAVAILABLE at `deadline`.
    """
    loop = asyncio.get_running_loop()
    while True:
        answer = await connection.call(subject, request, deadline=deadline)
        body: dict[str, Any] = json.loads(answer.data)
        if "error" not in body:
            return body
        if absent and body["error"].get("err_code") == absent:
            return None
        failure = api_error(body["error"], what)
        if failure.code is not ErrorCode.UNAVAILABLE or loop.time() >= deadline:
            raise failure
        await asyncio.sleep(0.1)


def api_error(error: dict[str, Any], what: str) -> HanseError:
    """JetStream's error in the terms of the catalogue."""
    code = int(error.get("code", 500))
    text = f"bus: {what}: {error.get('description', 'unknown error')}"
    if code == 404:
        return HanseError(ErrorCode.NOT_FOUND, text, hint="run `python -m hanse_operations state`")
    if "maximum bytes exceeded" in text:
        return HanseError(ErrorCode.NO_SPACE, text, hint="give the bus more room: hanse_operations state --storage")
    if code == 503 or error.get("err_code") in _FOR_NOW:
        return HanseError(ErrorCode.UNAVAILABLE, text)
    return HanseError(ErrorCode.INTERNAL, text)
