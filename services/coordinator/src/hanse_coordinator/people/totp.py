"""Codes of an authenticator: time-based one-time passwords (RFC 6238), six digits every 30 seconds, each taken once."""

from __future__ import annotations

import base64
import binascii
import secrets
from datetime import datetime

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor import InvalidToken
from cryptography.hazmat.primitives.twofactor.totp import TOTP

_STEP_S, _DIGITS = 30, 6
_DRIFT = 1
"""Steps that the clocks of hub and authenticator may be apart."""


def make_secret() -> str:
    """160 random bits (RFC 4226, 4), in base32."""
    return base64.b32encode(secrets.token_bytes(20)).decode()


def address(secret: str, *, name: str, hub: str) -> str:
    """What an authenticator reads as a picture: `otpauth://totp/...`."""
    return _totp(secret).get_provisioning_uri(name, hub)


def taken_step(secret: str, code: str, now: datetime, *, after: int) -> int | None:
    """The step of a code that is right now and belongs to a later step than `after`; None where there is none."""
    totp, present = _totp(secret), int(now.timestamp()) // _STEP_S
    for step in range(present - _DRIFT, present + _DRIFT + 1):
        try:
            totp.verify(code.encode(), step * _STEP_S)
        except InvalidToken:
            continue
        return step if step > after else None
    return None


def _totp(secret: str) -> TOTP:
    try:
        key = base64.b32decode(secret)
    except binascii.Error:
        raise ValueError("not a secret of an authenticator") from None
    return TOTP(key, _DIGITS, SHA1(), _STEP_S)  # noqa: S303 - what authenticators know; HMAC does not need more of it
