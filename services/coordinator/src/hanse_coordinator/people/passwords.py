"""Passwords: Argon2id (RFC 9106), a few at once, for each takes 64 MiB and a tenth of a second."""

from __future__ import annotations

import asyncio
import base64
import secrets

from argon2 import Parameters, PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.profiles import RFC_9106_LOW_MEMORY

from hanse_fabric.errors import ErrorCode, HanseError

SHORTEST = 12
_AT_ONCE, _WAITING = 2, 32


def check_password(password: str, name: str) -> None:
    """INVALID_INPUT, which does not repeat it, for a password that is guessed early: long ones need no signs and
    digits (NIST SP 800-63B, 3.1.1.2)."""
    least = f"at least {SHORTEST} characters"
    if len(password) < SHORTEST:
        raise _unfit(f"it has {len(password)} characters, {least} are expected")
    if len(set(password.lower())) < SHORTEST // 2:
        raise _unfit("it repeats a few characters")
    if name.partition("@")[0] in password.lower() and len(password) < SHORTEST + len(name):
        raise _unfit("it is hardly more than the name")


def _unfit(why: str) -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT, f"password: {why}", hint="take four or five words that do not belong together"
    )


def nobodys_hash(parameters: Parameters) -> str:
    """In the form of a hash, without one: checking a password against it takes as long as any check, and making it
    takes no time, when a replica starts."""
    salt, made = (
        base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=")
        for size in (parameters.salt_len, parameters.hash_len)
    )
    costs = f"m={parameters.memory_cost},t={parameters.time_cost},p={parameters.parallelism}"
    return f"$argon2{parameters.type.name.lower()}$v={parameters.version}${costs}${salt}${made}"


class Passwords:
    """Makes hashes of passwords and checks them, in threads, so many at once that memory and processors are left."""

    def __init__(self, parameters: Parameters = RFC_9106_LOW_MEMORY) -> None:
        self._hasher = PasswordHasher.from_parameters(parameters)
        self._nobodys = nobodys_hash(parameters)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Its hash, with the salt and the parameters."""
        return str(await self._run(self._hasher.hash, password))

    async def matches(self, kept: str | None, password: str) -> bool:
        """Whether it is the password behind a hash; None, of nobody, takes as long and is never."""

        def verified(known: str, given: str) -> bool:
            try:
                return self._hasher.verify(known, given)
            except (VerificationError, InvalidHashError):
                return False

        return bool(await self._run(verified, kept or self._nobodys, password)) and kept is not None

    def is_outdated(self, kept: str) -> bool:
        """Whether the hash was made with other parameters than today's."""
        return self._hasher.check_needs_rehash(kept)

    async def _run(self, work: object, *given: str) -> object:
        if self._waiting >= _WAITING:
            raise HanseError(
                ErrorCode.UNAVAILABLE, "password: many others are being checked", hint="try again in a moment"
            )
        self._waiting += 1
        try:
            async with self._places:
                return await asyncio.to_thread(work, *given)  # type: ignore[arg-type]
        finally:
            self._waiting -= 1
