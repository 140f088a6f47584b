"""Which coordinator works on a run: a lease in the LEASES bucket, changed by compare-and-set, renewed while held.

A lease decides who should work; the journal's fence decides who can. So a lease that is wrong for a moment (a paused
process, a slow network) costs time and never correctness. Contenders measure on their own monotonic clock, never by
comparing clocks: a lease whose revision has not changed for its whole term belongs to nobody.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Message
from hanse_fabric.names import RunId
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import LEASES


class LeaseRecord(Message):
    """Who holds a run. Each renewal is a new revision of the record."""

    schema_id: ClassVar[str] = "hanse.lease/1"

    run: RunId
    holder: str


@dataclass(slots=True)
class _Seen:
    revision: int
    since: float  # on the bus's monotonic clock
    holder: str
    inherited: bool  # it was there when this coordinator started


class Lease:
    """A run's lease in our hands."""

    def __init__(
        self, bucket: Bucket[LeaseRecord], record: LeaseRecord, revision: int, ttl: float, clock: Clock
    ) -> None:
        self._bucket, self._record, self._revision = bucket, record, revision
        self._ttl, self._clock = ttl, clock

    async def keep(self) -> None:
        """Renew every third of the term; returns when another has taken the lease."""
        while True:
            await self._clock.sleep(self._ttl / 3)
            try:
                renewed = await self._bucket.update(self._record, self._revision, run=self._record.run)
            except HanseError as error:
                if error.code is ErrorCode.CONFLICT:
                    return
                if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                    raise
                # The bus is away for everybody, so nobody else can have taken the lease: try again.
                continue
            self._revision = renewed.revision

    async def release(self) -> None:
        """Let another take the run at once. A lease that is lost already is left alone."""
        try:
            await self._bucket.delete(self._revision, run=self._record.run)
        except HanseError as error:
            if error.code not in (ErrorCode.CONFLICT, ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                raise


class Leases:
    """All leases as this coordinator sees them.

    Args:
        instance: this coordinator's name. A lease that it finds under its own name when it starts is its own from
            before a restart, and free at once; so two coordinators must never share a name.
        ttl: the term, in seconds.
        changed: set at every change of a lease.
    """

    def __init__(self, bus: Bus, *, instance: str, ttl: float, changed: asyncio.Event) -> None:
        self._bucket = Bucket(bus, LEASES, LeaseRecord)
        self._instance, self._ttl, self._clock = instance, ttl, bus.clock
        self._seen: dict[str, _Seen] = {}
        self.ready = asyncio.Event()
        self._changed = changed

    async def watch(self) -> None:
        """Keep the view of all leases current, until cancelled."""
        async with self._bucket.watch() as changes:
            async for change in changes:
                if change is None:
                    self.ready.set()
                elif change.value is None:
                    self._seen.pop(change.tokens["run"], None)
                else:
                    self._seen[change.tokens["run"]] = _Seen(
                        change.revision,
                        self._clock.monotonic(),
                        change.value.holder,
                        inherited=not self.ready.is_set(),
                    )
                self._changed.set()

    def free_in(self, run: str) -> float:
        """Seconds until the run's lease may be taken, if nobody renews it meanwhile; 0: now."""
        seen = self._seen.get(run)
        if seen is None or (seen.inherited and seen.holder == self._instance):
            return 0.0
        return max(0.0, seen.since + self._ttl - self._clock.monotonic())

    async def take(self, run: str) -> Lease | None:
        """Take the lease of a run whose lease is free; None when another was faster."""
        seen = self._seen.get(run)
        record = LeaseRecord(run=run, holder=self._instance)
        try:
            if seen is None:
                entry = await self._bucket.create(record, run=run)
            else:
                entry = await self._bucket.update(record, seen.revision, run=run)
        except HanseError as error:
            if error.code is ErrorCode.CONFLICT:
                return None
            raise
        return Lease(self._bucket, record, entry.revision, self._ttl, self._clock)
