"""Typed records in key-value buckets of the bus: read, compare-and-set, watch. The hub has no other database."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Message
from hanse_fabric.subjects import Stream, Subject
from hanse_fabric.telemetry.catalogue import UNREADABLE

M = TypeVar("M", bound=Message)

_TOKEN = re.compile(r"^[A-Za-z0-9_=-]{1,128}$")
_log = logging.getLogger(__name__)
_TOMBSTONE = {"KV-Operation": "DEL"}
_TRIES = 50
_AT_A_TIME_S = 0.02
"""Of a processor, for which records are read before others have their turn."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[M]):
    """A record as it was read. `revision` is what `update` and `delete` compare; `tokens` is its key."""

    value: M
    revision: int
    tokens: dict[str, str]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that this release cannot read, and why."""

    subject: str
    revision: int
    tokens: dict[str, str]
    error: HanseError


class UnreadableError(HanseError):
    """A record that was asked for by its key cannot be read."""

    def __init__(self, found: Unreadable) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SCHEMA, f"record {found.subject} cannot be read: {found.error.message}",
            hint="the operator finds all such records by: hanse hub unreadable",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change(Generic[M]):
    """What `watch` yields: a record's current value, or None when it was deleted."""

    value: M | None
    revision: int
    tokens: dict[str, str]


class Bucket(Generic[M]):
    """The records of one row of the table of subjects, all of one message class.

    Args:
        bus: where they are.
        subject: a row whose stream keeps the last message of each subject.
        message: the class of the values.
    """

    def __init__(self, bus: Bus, subject: Subject, message: type[M]) -> None:
        if subject.stream is None or not subject.stream.last_only:
            raise invalid("subject", subject.pattern, "a row with a stream that keeps the last message of a subject")
        self._bus, self._subject, self._message = bus, subject, message
        self._stream: Stream = subject.stream
        self._named: dict[str, int] = {}

    async def get(self, **tokens: str) -> Entry[M] | None:
        """The record, or None where there is none or it was deleted.

        Raises:
            UnreadableError: there is one that this release cannot read.
        """
        record = await self._bus.last(self._stream, self._key(tokens))
        if record is None or _deleted(record):
            return None
        entry = self._entry(record)
        if isinstance(entry, Unreadable):
            raise UnreadableError(entry)
        return entry

    async def require(self, **tokens: str) -> Entry[M]:
        """The record.

        Raises:
            HanseError: NOT_FOUND where there is none.
        """
        entry = await self.get(**tokens)
        if entry is None:
            raise self._absent(tokens)
        return entry

    async def create(self, value: M, **tokens: str) -> Entry[M]:
        """Store a record that must not exist yet (a deleted one does not).

        Raises:
            HanseError: CONFLICT where it exists.
        """
        key, expected = self._key(tokens), 0
        for _ in range(_TRIES):
            try:
                revision = await self._bus.publish(key, value.encode(), expected_last=expected)
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
            else:
                return Entry(value, revision, tokens)
            record = await self._bus.last(self._stream, key)
            if record is not None and not _deleted(record):
                break
            expected = 0 if record is None else record.sequence
        raise HanseError(ErrorCode.CONFLICT, f"{self._name(tokens)} exists already")

    async def update(self, value: M, revision: int, **tokens: str) -> Entry[M]:
        """Replace the record if it still has `revision`.

        Raises:
            HanseError: CONFLICT where it changed meanwhile.
        """
        return Entry(value, await self._bus.publish(self._key(tokens), value.encode(), expected_last=revision), tokens)

    async def change(self, alter: Callable[[M], M], known: Entry[M] | None = None, /, **tokens: str) -> Entry[M]:
        """Read, alter, compare and set, again when another writer came between. Nothing is written where `alter`
        returns an equal value.

        Args:
            known: how the record was when this writer last saw it, which is tried before it is read.

        Raises:
            HanseError: NOT_FOUND where there is no record; CONFLICT after 50 lost races; what `alter` raises.
        """
        for attempt in range(_TRIES):
            entry = known or await self.require(**tokens)
            known = None
            value = alter(entry.value)
            if value == entry.value:
                return entry
            try:
                return await self.update(value, entry.revision, **tokens)
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
            pause = random.uniform(0, 0.001 * min(attempt + 1, 20))  # noqa: S311 - only spreads the writers
            await self._bus.clock.sleep(pause)
        raise HanseError(ErrorCode.CONFLICT, f"{self._name(tokens)} changed during each of {_TRIES} attempts to write")

    async def delete(self, revision: int | None = None, **tokens: str) -> None:
        """Mark the record as deleted; with `revision` only if it still has it (else CONFLICT)."""
        await self._bus.publish(self._key(tokens), b"", headers=_TOMBSTONE, expected_last=revision)

    async def list(self, **tokens: str) -> list[Entry[M]]:
        """All records whose key has the given tokens, in the order in which they were last written. Those that cannot
        be read are left out, logged and counted."""
        return [*(await self.scan(**tokens))[0]]

    async def scan(self, **tokens: str) -> tuple[Sequence[Entry[M]], Sequence[Unreadable]]:
        """As `list`, and beside it the records that cannot be read."""
        records = await self._bus.snapshot(self._stream, self._pattern(tokens))
        found: list[Entry[M] | Unreadable] = []
        clock = self._bus.clock
        until = clock.monotonic() + _AT_A_TIME_S
        for record in records:
            if not _deleted(record):
                found.append(self._entry(record))
            if clock.monotonic() >= until:  # whoever has many records, and large ones, holds nobody up
                await clock.sleep(0)
                until = clock.monotonic() + _AT_A_TIME_S
        return [each for each in found if isinstance(each, Entry)], [
            each for each in found if isinstance(each, Unreadable)
        ]

    @asynccontextmanager
    async def watch(self, **tokens: str) -> AsyncIterator[AsyncIterator[Change[M] | None]]:
        """The current records, then None once (caught up), then every change as it comes; ends with the context.

        A record that this release cannot read is logged and passed over: one newer record must not stop a service.
        """
        pattern = self._pattern(tokens)
        current = await self._bus.snapshot(self._stream, pattern)
        after = max((record.sequence for record in current), default=0)
        async with self._bus.follow(self._stream, pattern, after=after) as live:
            yield self._changes(current, live)

    async def _changes(
        self,
        current: Sequence[Record],
        live: AsyncIterator[Record],
    ) -> AsyncIterator[Change[M] | None]:
        for record in current:
            if not _deleted(record) and (change := self._as_change(record)) is not None:
                yield change
        yield None
        async for record in live:
            if (change := self._as_change(record)) is not None:
                yield change

    def _as_change(self, record: Record) -> Change[M] | None:
        if _deleted(record):
            return Change(None, record.sequence, self._subject.parse(record.subject))
        entry = self._entry(record)
        return None if isinstance(entry, Unreadable) else Change(entry.value, entry.revision, entry.tokens)

    def _entry(self, record: Record) -> Entry[M] | Unreadable:
        tokens = self._subject.parse(record.subject)
        try:
            return Entry(self._message.decode(record.data), record.sequence, tokens)
        except HanseError as error:
            if self._named.get(record.subject) != record.sequence:
                self._named[record.subject] = record.sequence
                _log.error("record %s cannot be read: %s", record.subject, error)
                UNREADABLE.add(area=self._stream.name, code=error.code.code)
            return Unreadable(record.subject, record.sequence, tokens, error)

    def _key(self, tokens: dict[str, str]) -> str:
        missing = [name for name in self._subject.tokens if name not in tokens]
        if missing:
            raise invalid("tokens", tokens, f"a whole key, {', '.join(missing)} is missing")
        _check(tokens)
        return self._subject.of(**tokens)

    def _pattern(self, tokens: dict[str, str]) -> str:
        _check(tokens)
        return self._subject.wildcard(**tokens)

    def _name(self, tokens: dict[str, str]) -> str:
        return " ".join(f"{name} {value!r}" for name, value in tokens.items())

    def _absent(self, tokens: dict[str, str]) -> HanseError:
        return HanseError(ErrorCode.NOT_FOUND, f"there is no {self._name(tokens)}")


def _check(tokens: dict[str, str]) -> None:
    for name, value in tokens.items():
        if not _TOKEN.match(value):
            raise invalid(name, value, "a name of letters, digits, hyphens and underscores")


def _deleted(record: Record) -> bool:
    return record.headers.get("KV-Operation") in ("DEL", "PURGE")
