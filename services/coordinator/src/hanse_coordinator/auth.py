"""Who asks: API keys as bearer tokens, kept as hashes, compared in constant time.

All keys are held in memory and kept current by watching their bucket, so that a revoked key stops at once and an
authenticated request asks nobody.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hanse_coordinator.records import ApiKeyRecord
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.records import Bucket, UnreadableError
from hanse_schemas.http.keys import ApiRole

_LOG = logging.getLogger(__name__)
_NOBODY = "0" * 64
_LOOKING_AT_ONCE = 4
_HINT = "give a valid API key: `Authorization: Bearer hanse_...`"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `project` None: every project. Public routes have no key: `key` is empty and `role` None."""

    key: str = ""
    role: ApiRole | None = None
    project: str | None = None
    participant: str | None = None

    @property
    def actor(self) -> str:
        return f"key:{self.key}" if self.key else "nobody"

    @property
    def authority(self) -> str:
        return f"{self.role.value if self.role else 'no'} key for {self.project or 'all projects'}"

    def sees(self, project: str) -> bool:
        return self.project is None or self.project == project


class FailureLimiter:
    """Counts failed attempts by address in windows of a minute, for at most `addresses` of them (the oldest go)."""

    def __init__(self, clock: Clock, *, allowed: int = 30, addresses: int = 4096) -> None:
        self._clock, self._allowed, self._addresses = clock, allowed, addresses
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._looking = 0

    def exhausted(self, address: str) -> bool:
        minute, count = self._failures.get(address, (0, 0))
        return minute == self._minute() and count >= self._allowed

    def failed(self, address: str) -> None:
        minute, count = self._failures.pop(address, (0, 0))
        now = self._minute()
        self._failures[address] = (now, count + 1 if minute == now else 1)
        while len(self._failures) > self._addresses:
            self._failures.popitem(last=False)

    @contextmanager
    def looking_up(self, address: str, what: str) -> Iterator[None]:
        """While inside, the bus is asked whether what somebody showed is known. Of all addresses that have failed too
        often a few at once may ask: what they show may be good, for many stand behind one proxy.

        Raises:
            HanseError: UNAVAILABLE, where others of these ask already: it was not looked at, and may be good.
        """
        failing = self.exhausted(address)
        if failing and self._looking >= _LOOKING_AT_ONCE:
            raise HanseError(
                ErrorCode.UNAVAILABLE,
                f"{what}: too many failed attempts from this address",
                hint=f"wait a minute, and check the {what}",
            )
        self._looking += failing
        try:
            yield
        finally:
            self._looking -= failing

    def _minute(self) -> int:
        return int(self._clock.now().timestamp() // 60)


class KeyRing:
    """The API keys of the hub, as `watch` keeps them."""

    def __init__(self, bucket: Bucket[ApiKeyRecord], clock: Clock) -> None:
        self._bucket = bucket
        self._records: dict[str, tuple[ApiKeyRecord, int]] = {}
        self.limiter = FailureLimiter(clock)
        self.ready = asyncio.Event()

    async def watch(self) -> None:
        """Follow the bucket until cancelled."""
        async with self._bucket.watch() as changes:
            async for change in changes:
                if change is None:
                    self.ready.set()
                elif change.value is None:
                    self._records.pop(change.tokens["key"], None)
                else:
                    self.note(change.value, change.revision)

    def note(self, record: ApiKeyRecord, revision: int) -> None:
        """Take a record that was read or written just now, before the watch brings it. Older ones change nothing."""
        if record.id not in self._records or self._records[record.id][1] <= revision:
            self._records[record.id] = record, revision

    async def identify(self, header: str | None, address: str) -> Caller:
        """The caller behind an Authorization header.

        A valid key passes always. After too many failures from an address in a minute, few of its attempts at once
        make the bus be looked at.

        Raises:
            HanseError: UNAUTHENTICATED; it does not tell whether the key existed. UNAVAILABLE: it was not looked at.
        """
        if header is None:
            raise HanseError(ErrorCode.UNAUTHENTICATED, "Authorization: no API key was given", hint=_HINT)
        try:
            scheme, _, text = header.partition(" ")
            if scheme.lower() != "bearer":
                raise HanseError(ErrorCode.UNAUTHENTICATED, "Authorization: not a bearer token", hint=_HINT)
            credential = secrets.parse(text, secrets.Kind.API_KEY)
            record = await self._find(credential.id, address)
            kept = record.hash if record is not None else _NOBODY
            if not hmac.compare_digest(credential.hash, kept) or record is None or record.revoked:
                raise HanseError(ErrorCode.UNAUTHENTICATED, "API key: it is not known here, or was revoked", hint=_HINT)
        except HanseError as error:
            if error.code is ErrorCode.UNAUTHENTICATED:
                self.limiter.failed(address)
            raise
        return Caller(record.id, record.role, record.project, record.participant)

    async def _find(self, key: str, address: str) -> ApiKeyRecord | None:
        held = self._records.get(key)
        if held is not None:
            return held[0]
        # Another replica may have made it a moment ago.
        try:
            with self.limiter.looking_up(address, "API key"):
                entry = await self._bucket.get(key=key)
        except UnreadableError:
            return None
        if entry is None:
            return None
        self.note(entry.value, entry.revision)
        return entry.value


async def register_bootstrap(file: Path, bucket: Bucket[ApiKeyRecord], clock: Clock) -> None:
    """Register the key in `file` as an operator's, unless it is there already (also as revoked).

    Raises:
        HanseError: INVALID_INPUT when the file cannot be read or holds no API key; CONFLICT when its id is another's.
    """
    try:
        credential = secrets.parse(await asyncio.to_thread(file.read_text), secrets.Kind.API_KEY)
    except (OSError, UnicodeDecodeError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"HANSE_BOOTSTRAP_KEY_FILE: {file}: {error}") from None
    except HanseError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"HANSE_BOOTSTRAP_KEY_FILE: {file}: {error.message}") from None
    record = ApiKeyRecord(
        id=credential.id,
        hash=credential.hash,
        role=ApiRole.OPERATOR,
        name="made at installation",
        created_at=clock.now(),
        created_by="service:coordinator",
    )
    try:
        await bucket.create(record, key=record.id)
    except HanseError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
        try:
            there = await bucket.require(key=record.id)
        except UnreadableError as unreadable:
            _LOG.error("the operator's key lets nobody in: %s; make a new one in %s", unreadable.message, file)
            return
        if not credential.matches(there.value.hash):
            raise HanseError(
                ErrorCode.CONFLICT, f"HANSE_BOOTSTRAP_KEY_FILE: {file}: the id {record.id} is another key's"
            ) from None
