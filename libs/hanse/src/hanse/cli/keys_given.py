"""Public keys as people type them."""

from __future__ import annotations

import base64

from hanse_fabric.errors import ErrorCode, HanseError


def key_of(given: str | None) -> bytes | None:
    """The raw bytes of `--trusted-key`.

    Raises:
        HanseError: INVALID_INPUT for what is not base64.
    """
    try:
        return None if given is None else base64.b64decode(given, validate=True)
    except ValueError:
        raise HanseError(ErrorCode.INVALID_INPUT, f"--trusted-key: {given!r} is not base64") from None
