"""The records of a bucket, held in memory and kept current by watching it, so that a request asks nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from hanse_fabric.messages.base import Message
from hanse_fabric.records import Bucket, Entry, UnreadableError

M = TypeVar("M", bound=Message)


class Held(Generic[M]):
    """The records of a bucket whose keys have one token.

    Args:
        token: its name.
        most: of records; beyond it those that `passed` names go from memory.
        passed: whether a record is of no use any more.
    """

    def __init__(self, bucket: Bucket[M], token: str, passed: Callable[[M], bool] = lambda _: False) -> None:
        self.bucket, self._token, self._passed = bucket, token, passed
        self._records: dict[str, Entry[M]] = {}
        self._tidy_at = 1024
        self.ready = asyncio.Event()

    async def watch(self) -> None:
        """Follow the bucket until cancelled."""
        async with self.bucket.watch() as changes:
            async for change in changes:
                if change is None:
                    self.ready.set()
                elif change.value is None:
                    self._records.pop(change.tokens[self._token], None)
                else:
                    self.note(Entry(change.value, change.revision, change.tokens))

    def note(self, entry: Entry[M]) -> None:
        """Take a record that was read or written just now, before the watch brings it. Older ones change nothing."""
        key = entry.tokens[self._token]
        if key not in self._records or self._records[key].revision <= entry.revision:
            self._records[key] = entry
        if len(self._records) > self._tidy_at:
            self._records = {key: kept for key, kept in self._records.items() if not self._passed(kept.value)}
            self._tidy_at = max(1024, 2 * len(self._records))

    def get(self, key: str) -> M | None:
        """The record, where it is held."""
        held = self._records.get(key)
        return held.value if held is not None else None

    async def find(self, key: str) -> M | None:
        """The record; the bus is asked for one that is not held, for another replica may have made it a moment ago."""
        return self.get(key) or await self.read(key)

    async def read(self, key: str) -> M | None:
        """The record as the bus has it; None, too, for one that this release cannot read."""
        try:
            entry = await self.bucket.get(**{self._token: key})
        except UnreadableError:
            return None
        if entry is None:
            return None
        self.note(entry)
        return entry.value

    async def change(self, key: str, alter: Callable[[M], M]) -> M:
        """`Bucket.change`, and what has become of it is held."""
        entry = await self.bucket.change(alter, **{self._token: key})
        self.note(entry)
        return entry.value

    async def create(self, key: str, value: M) -> M:
        """`Bucket.create`, and it is held."""
        entry = await self.bucket.create(value, **{self._token: key})
        self.note(entry)
        return entry.value

    def __iter__(self) -> Iterator[M]:
        return iter([entry.value for entry in self._records.values()])
