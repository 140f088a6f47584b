"""How the coordinator gives and takes bus credentials: a small port, and its implementation with the bus's keys."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Protocol

from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse_fabric.bus.authority import BusAuthority


class Credentials(Protocol):
    """What enrolling and revoking need of the bus."""

    async def issue(self, project: str, participant: str, bus_key: str) -> str:
        """A user JWT for the participant's public key; INVALID_INPUT when that is none."""
        ...

    async def revoke(self, bus_key: str) -> None:
        """Void the key's credentials and drop its connections."""
        ...


class BusCredentials:
    """With the keys of the bus's operator and account."""

    def __init__(self, authority: BusAuthority, url: str, tls: ssl.SSLContext | None = None) -> None:
        self._authority, self._url, self._tls = authority, url, tls
        self._lock = asyncio.Lock()

    async def issue(self, project: str, participant: str, bus_key: str) -> str:
        return self._authority.participant_jwt(project, participant, bus_key)

    async def revoke(self, bus_key: str) -> None:
        async with self._lock:
            await self._authority.revoke(bus_key, url=self._url, tls=self._tls)


class NoCredentials:
    """Where no authority is configured: sites cannot be enrolled here."""

    async def issue(self, project: str, participant: str, bus_key: str) -> str:  # noqa: ARG002
        raise self._absent()

    async def revoke(self, bus_key: str) -> None:  # noqa: ARG002
        raise self._absent()

    def _absent(self) -> HanseError:
        return HanseError(
            ErrorCode.UNAVAILABLE,
            "this coordinator has no keys for the bus",
            hint="the operator sets HANSE_BUS_AUTHORITY to the folder with the bus's keys",
        )
