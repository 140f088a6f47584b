"""Who asks: API keys as bearer tokens, kept as hashes, compared in constant time.

All keys are held in memory and kept current by watching their bucket, so that a revoked key stops at once and an
authenticated request asks nobody.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hanse_coordinator.people.held import Held
from hanse_coordinator.records import ApiKeyRecord
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.records import Bucket, Entry, UnreadableError
from hanse_schemas.http.keys import ApiRole

_LOG = logging.getLogger(__name__)
_NOBODY = "0" * 64
_LOOKING_AT_ONCE = 4
_KEY = "key:"
_HINT = "give a valid API key: `Authorization: Bearer hanse_...`"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: an API key, or a person in a session. Public routes need neither, and have no `role`.

    Attributes:
        projects: None: every project.
        display: how the person is called.
        read_only: the key is for reading alone.
    """

    key: str = ""
    role: ApiRole | None = None
    projects: tuple[str, ...] | None = None
    participant: str | None = None
    person: str = ""
    display: str = ""
    session: str = ""
    read_only: bool = False

    @property
    def actor(self) -> str:
        if self.person:
            return f"person:{self.person}"
        return f"key:{self.key}" if self.key else "nobody"

    @property
    def authority(self) -> str:
        role = self.role.value if self.role else "no"
        what = f"{role} ({self.display or self.person})" if self.person else f"{role} key"
        return f"{what} for {self.scope}"

    @property
    def scope(self) -> str:
        return "all projects" if self.projects is None else ", ".join(self.projects)

    def sees(self, project: str) -> bool:
        return self.projects is None or project in self.projects


class FailureLimiter:
    """Counts failed attempts by address in windows of `window_s`, for at most `addresses` of them (the oldest go)."""

    def __init__(self, clock: Clock, *, allowed: int = 30, addresses: int = 4096, window_s: float = 60) -> None:
        self._clock, self._allowed, self._addresses, self._window_s = clock, allowed, addresses, window_s
        self._failures: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._looking = 0

    def exhausted(self, address: str) -> bool:
        window, count = self._failures.get(address, (0, 0))
        return window == self._window() and count >= self._allowed

    def failed(self, address: str) -> None:
        window, count = self._failures.pop(address, (0, 0))
        now = self._window()
        self._failures[address] = (now, count + 1 if window == now else 1)
        while len(self._failures) > self._addresses:
            self._failures.popitem(last=False)

    def forgive(self, address: str) -> None:
        """Take one failure back."""
        window, count = self._failures.get(address, (0, 0))
        if count:
            self._failures[address] = (window, count - 1)

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

    def _window(self) -> int:
        return int(self._clock.now().timestamp() // self._window_s)


async def _always(_actor: str, _then: datetime) -> bool:
    return True


class KeyRing:
    """The API keys of the hub, as `watch` keeps them.

    Args:
        may_still: whether who made a key at a moment may still make one, by their name as actor.
    """

    def __init__(
        self, bucket: Bucket[ApiKeyRecord], clock: Clock,
        may_still: Callable[[str, datetime], Awaitable[bool]] = _always,
    ) -> None:  # fmt: skip
        self._held, self._clock, self._may_still = Held(bucket, "key"), clock, may_still
        self.limiter = FailureLimiter(clock)
        self.ready = self._held.ready

    async def watch(self) -> None:
        """Follow the bucket until cancelled."""
        await self._held.watch()

    def note(self, record: ApiKeyRecord, revision: int) -> None:
        """As `Held.note`."""
        self._held.note(Entry(record, revision, {"key": record.id}))

    async def admits(self, key: str) -> bool:
        """Whether a key that was shown before is still good."""
        held = self._held.get(key)
        if held is None or held.revoked or self._is_over(held):
            return False
        return not await self.void_by(held)

    async def void_by(self, record: ApiKeyRecord) -> str:
        """The person who made it, by themselves or by a key of theirs, and who may make none any more; else nothing.

        A site's own key comes from joining, whoever invited it: it ends when the site is revoked.
        """
        if record.participant is not None:
            return ""
        made, seen = record, {record.id}
        while made.created_by.startswith(_KEY) and (by := made.created_by.removeprefix(_KEY)) not in seen:
            seen.add(by)
            maker = self._held.get(by)
            if maker is None:
                return ""
            made = maker
        return "" if await self._may_still(made.created_by, made.created_at) else made.created_by

    def _is_over(self, record: ApiKeyRecord) -> bool:
        return record.expires_at is not None and record.expires_at <= self._clock.now()

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
            if record.expires_at is not None and self._is_over(record):
                raise HanseError(
                    ErrorCode.UNAUTHENTICATED, f"API key: it expired at {record.expires_at:%Y-%m-%d %H:%M:%S} UTC",
                    hint="ask the operator for another",
                )  # fmt: skip
            if maker := await self.void_by(record):
                raise HanseError(
                    ErrorCode.UNAUTHENTICATED, f"API key: {maker}, who made it, is no operator any more",
                    hint="ask an operator for another",
                )  # fmt: skip
        except HanseError as error:
            if error.code is ErrorCode.UNAUTHENTICATED:
                self.limiter.failed(address)
            raise
        projects = None if record.project is None else (record.project,)
        return Caller(record.id, record.role, projects, record.participant, read_only=bool(record.read_only))

    async def _find(self, key: str, address: str) -> ApiKeyRecord | None:
        held = self._held.get(key)
        if held is not None:
            return held
        with self.limiter.looking_up(address, "API key"):  # another replica may have made it a moment ago
            return await self._held.read(key)


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
