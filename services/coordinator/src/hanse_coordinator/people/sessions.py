"""Sessions: opened for a person, known by a cookie at every replica and after every restart; ended by idling, by age,
by signing out, and with the person's rights."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiohttp import web

from hanse_coordinator.auth import Caller, FailureLimiter
from hanse_coordinator.people.cookies import SESSION, check_csrf, read_cookie
from hanse_coordinator.people.held import Held
from hanse_coordinator.people.records import PersonRecord, SessionRecord, person_key
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.secrets import Credential, Kind
from hanse_fabric.records import Bucket
from hanse_schemas.http.keys import ApiRole

MOST_OF_A_PERSON, MOST = 10, 10_000
_NOBODY = "0" * 64


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """How long sessions last, in seconds: without a request, and at the most."""

    idle_s: float = 1800.0
    lifetime_s: float = 43_200.0


class Sessions:
    """The sessions of a hub.

    Args:
        people: whose they are.
        limiter: of attempts with what is no session.
    """

    def __init__(
        self, bucket: Bucket[SessionRecord], people: Held[PersonRecord], clock: Clock, terms: SessionTerms,
        limiter: FailureLimiter,
    ) -> None:  # fmt: skip
        self.held = Held(bucket, "login", lambda record: not self._lasts(record))
        self.terms = terms
        self._people, self._clock, self._limiter = people, clock, limiter
        self._noting: set[str] = set()

    async def open(self, person: PersonRecord) -> tuple[SessionRecord, Credential]:
        """A new session of somebody who has shown who they are. Where there are too many, the longest idle one ends."""
        now, made = self._clock.now(), secrets.make(Kind.SESSION)
        await self._make_room(person.name)
        record = SessionRecord(
            id=made.id, hash=made.hash, person=person.name, generation=person.generation, created_at=now, last_seen=now,
            expires_at=now + timedelta(seconds=self.terms.lifetime_s),
        )  # fmt: skip
        return await self.held.create(made.id, record), made

    async def identify(self, http: web.Request, address: str) -> tuple[Caller, Credential] | None:
        """Whose session a request's cookie is; None where it has none.

        Raises:
            HanseError: UNAUTHENTICATED for one that is over, or never was; FORBIDDEN for what a page of elsewhere asks.
        """
        text = read_cookie(http, SESSION)
        if text is None:
            return None
        try:
            shown = secrets.parse(text, Kind.SESSION)
            record = await self._find(shown.id, address)
            kept = record.hash if record is not None else _NOBODY
            if not hmac.compare_digest(shown.hash, kept) or record is None or not self._lasts(record):
                raise _over()
            person = await self._people.find(person_key(record.person))
            if person is None or not _holds(record, person):
                raise _over()
        except HanseError as error:
            if error.code is ErrorCode.UNAUTHENTICATED:
                self._limiter.failed(address)
            raise
        check_csrf(http, shown.secret)
        await self._note_seen(record)
        return _caller(person, record.id), shown

    async def opens(self, session: str, project: str) -> bool:
        """Whether a session that was identified before still is one, of somebody who may see a project."""
        record = self.held.get(session)
        if record is None or not self._lasts(record):
            return False
        person = await self._people.find(person_key(record.person))
        return person is not None and _holds(record, person) and _caller(person, session).sees(project)

    async def end(self, session: str) -> None:
        """End one; nothing happens where there is none."""
        try:
            await self.held.change(session, lambda old: old.model_copy(update={"ended": True}))
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    def of(self, person: PersonRecord) -> int:
        """How many are open."""
        return sum(each.person == person.name and _holds(each, person) for each in self._open())

    def _open(self) -> Iterator[SessionRecord]:
        return (record for record in self.held if self._lasts(record))

    async def _make_room(self, name: str) -> None:
        there = sorted(self._open(), key=lambda record: record.last_seen)
        own = [record for record in there if record.person == name]
        over = [*own[: max(0, len(own) - MOST_OF_A_PERSON + 1)], *there[: max(0, len(there) - MOST + 1)]]
        for record in {each.id: each for each in over}:
            await self.end(record)

    def _lasts(self, record: SessionRecord) -> bool:
        now = self._clock.now()
        return not record.ended and now < record.expires_at and now < self._idle_until(record)

    def _idle_until(self, record: SessionRecord) -> datetime:
        return record.last_seen + timedelta(seconds=self.terms.idle_s)

    async def _find(self, session: str, address: str) -> SessionRecord | None:
        held = self.held.get(session)
        if held is not None:
            return held
        with self._limiter.looking_up(address, "session"):
            return await self.held.read(session)

    async def _note_seen(self, record: SessionRecord) -> None:
        """Written down a few times in the span that a session may idle, not with every request."""
        now = self._clock.now()
        if (now - record.last_seen).total_seconds() < min(60.0, self.terms.idle_s / 10) or record.id in self._noting:
            return
        self._noting.add(record.id)
        try:
            await self.held.change(record.id, lambda old: old.model_copy(update={"last_seen": max(old.last_seen, now)}))
        finally:
            self._noting.discard(record.id)


def _holds(record: SessionRecord, person: PersonRecord) -> bool:
    return person.name == record.person and person.generation == record.generation and not person.revoked


def _caller(person: PersonRecord, session: str) -> Caller:
    projects = None if person.role == "operator" else person.projects
    return Caller(
        role=ApiRole(person.role), projects=projects, person=person.name, display=person.display, session=session
    )


def _over() -> HanseError:
    return HanseError(ErrorCode.UNAUTHENTICATED, "session: it is over", hint="sign in again")
