"""How the coordinator gives and takes bus credentials: a small port, and its implementation with the bus's keys."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Protocol

from hanse_fabric.bus.issuing import FOR_GOOD
from hanse_fabric.bus.nkeys import KeyKind, decode_public
from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.state import RevocationRecord
from hanse_fabric.names import HUB_REGION
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import REVOCATIONS

if TYPE_CHECKING:
    from hanse_fabric.bus.authority import BusAuthority

_LOG = logging.getLogger(__name__)
_AGAIN_S = 5.0
_BACK_S = 3.0
"""A leaf node that was made to connect anew is there by then: it tries after a second."""


class Credentials(Protocol):
    """What enrolling and revoking need of the bus."""

    async def regions(self) -> tuple[str, ...]:
        """Whose tokens can be issued here."""
        ...

    async def issue(self, project: str, participant: str, bus_key: str, *, region: str) -> str:
        """A token for the participant's public key in a region; INVALID_INPUT when that is none, or unknown."""
        ...

    async def revoke(self, region: str, *bus_keys: str) -> None:
        """Void the credentials of a site's keys, which are of a region, and drop their connections."""
        ...

    async def revoke_leaf(self, region: str, bus_key: str) -> list[str]:
        """Void a leaf node's key for good, and drop its connections; returns the region's leaf nodes that are
        connected then, by name."""
        ...


class BusCredentials:
    """With the keys of the bus's account, and of who signs its claims.

    Whose keys are void is written down on the bus, for all replicas, before it is pushed to the servers as the
    account's claims. Each push holds the whole list and is followed by another look at it, so that of two replicas that
    revoke at once none undoes the other's; and servers that lost their disks get the list when a coordinator starts.
    """

    def __init__(self, authority: BusAuthority, bus: Bus, url: str, tls: ssl.SSLContext | None = None) -> None:
        self._authority, self._url, self._tls, self._clock = authority, url, tls, bus.clock
        self._revoked = Bucket(bus, REVOCATIONS, RevocationRecord)
        self._lock = asyncio.Lock()
        self._unread: dict[str, int] = {}

    async def regions(self) -> tuple[str, ...]:
        return await asyncio.to_thread(lambda: self._authority.regions)

    async def issue(self, project: str, participant: str, bus_key: str, *, region: str) -> str:
        return self._authority.participant_jwt(project, participant, bus_key, region=region)

    async def revoke(self, region: str, *bus_keys: str) -> None:
        for key in bus_keys:
            await self._write_down(key, int(self._clock.now().timestamp()), region)
        await self.settle()

    async def revoke_leaf(self, region: str, bus_key: str) -> list[str]:
        await self._write_down(bus_key, FOR_GOOD, region)
        await self.settle()
        await self._clock.sleep(_BACK_S)
        return await self._authority.leaves_of(region, url=self._url, tls=self._tls)

    async def _write_down(self, bus_key: str, at: int, region: str) -> None:
        decode_public(bus_key, KeyKind.USER)
        record = RevocationRecord(bus_key=bus_key, at=at, region=region)
        try:
            await self._revoked.create(record, key=bus_key)
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            # It was revoked before: either that push failed, or the site was let in again since, with newer tokens.
            await self._revoked.change(lambda old: _both(old, record), key=bus_key)

    async def settle(self) -> None:
        """Have the servers hold what is written down.

        Raises:
            HanseError: UNAVAILABLE when they do not confirm it.
        """
        async with self._lock:
            pushed: dict[str, tuple[int, str | None]] | None = None
            while (listed := await self._listed()) != pushed:
                until = {key: at for key, (at, _) in listed.items()}
                regions = {key: region for key, (_, region) in listed.items() if region is not None}
                await self._authority.settle(until, regions=regions, url=self._url, tls=self._tls)
                pushed = listed

    async def keep_settled(self) -> None:
        """At start: settle, again until it succeeds."""
        while True:
            try:
                return await self.settle()
            except HanseError as error:
                _LOG.warning("revocations could not be pushed to the bus: %s", error)
            await self._clock.sleep(_AGAIN_S)

    async def keep_few_connections(self) -> None:
        """Have no site fill the bus with connections, until cancelled."""
        await self._authority.keep_few_connections(self._clock, url=self._url, tls=self._tls)

    async def revoked(self) -> dict[str, int]:
        """Up to when (unix seconds) tokens are void, by bus key."""
        return {key: at for key, (at, _) in (await self._listed()).items()}

    async def _listed(self) -> dict[str, tuple[int, str | None]]:
        """The same, and in which region."""
        known, unreadable = await self._revoked.scan()
        # A record that cannot be read still says whose key is void, and nothing else: up to now, then.
        now = int(self._clock.now().timestamp())
        found: dict[str, tuple[int, str | None]] = {
            each.tokens["key"]: (self._unread.setdefault(each.subject, now), None) for each in unreadable
        }
        return found | {entry.value.bus_key: (entry.value.at, entry.value.region) for entry in known}


def _both(old: RevocationRecord, new: RevocationRecord) -> RevocationRecord:
    """The later of the two; of a key that had tokens in two regions, void in all."""
    later = new if old.at < new.at else old
    return later if old.region == new.region else later.model_copy(update={"region": None})


class NoCredentials:
    """Where no authority is configured: sites cannot be enrolled here."""

    async def regions(self) -> tuple[str, ...]:
        return (HUB_REGION,)

    async def issue(self, project: str, participant: str, bus_key: str, *, region: str) -> str:  # noqa: ARG002
        raise self._absent()

    async def revoke(self, region: str, *bus_keys: str) -> None:  # noqa: ARG002
        raise self._absent()

    async def revoke_leaf(self, region: str, bus_key: str) -> list[str]:  # noqa: ARG002
        raise self._absent()

    def _absent(self) -> HanseError:
        return HanseError(
            ErrorCode.UNAVAILABLE,
            "this coordinator has no keys for the bus",
            hint="the operator sets HANSE_BUS_AUTHORITY to the folder with the bus's keys",
        )
