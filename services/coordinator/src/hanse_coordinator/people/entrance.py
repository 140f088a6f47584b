"""How a person shows who they are: by a password and a code, or by a one-time link that lets them choose a password."""

from __future__ import annotations

import hashlib
import hmac
import secrets as randomness
from datetime import datetime, timedelta

from hanse_coordinator.people import totp
from hanse_coordinator.people.attempts import Attempt, Attempts
from hanse_coordinator.people.held import Held
from hanse_coordinator.people.passwords import Passwords, check_password
from hanse_coordinator.people.records import PersonRecord, person_key
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.secrets import Credential, Kind

LINK_FOR = timedelta(days=3)


class Entrance:
    """Where people are let in.

    Args:
        people: read anew at every attempt, for another replica may have changed them.
    """

    def __init__(self, people: Held[PersonRecord], clock: Clock) -> None:
        self.people, self._clock = people, clock
        self.passwords, self._attempts = Passwords(), Attempts(clock)

    async def by_password(
        self, name: str, password: str, code: str | None, *, address: str, browser: str | None = None
    ) -> PersonRecord:
        """The person whose name and password (and code) these are.

        Args:
            browser: the cookie of a browser that may be known to the person.

        Raises:
            HanseError: UNAUTHENTICATED, which does not tell what was wrong; SECOND_FACTOR where only the code is
                missing or wrong; TOO_MANY.
        """
        there = await self.people.read(person_key(name))
        person = there if there is not None and there.name == name and not there.revoked else None
        attempt = self._attempts.begin(name=name, address=address, browser=_known(person, browser))
        if not await self.passwords.matches(person.password if person else None, password) or person is None:
            raise HanseError(
                ErrorCode.UNAUTHENTICATED, "name, password: no person here has both",
                hint="an operator of the hub can give you a one-time link for another password",
            )  # fmt: skip
        return await self._let_in(person, password, code, attempt)

    async def again(self, person: PersonRecord, password: str, code: str | None, *, session: str) -> PersonRecord:
        """A person who is signed in shows the password (and code) once more; refused as by `by_password`."""
        attempt = self._attempts.begin(name=person.name, address="", browser=f"session {session}")
        if not await self.passwords.matches(person.password, password):
            raise HanseError(ErrorCode.FORBIDDEN, "password: it is not yours", hint="type the present one")
        return await self._let_in(person, password, code, attempt)

    async def _let_in(self, person: PersonRecord, password: str, code: str | None, attempt: Attempt) -> PersonRecord:
        if person.totp is not None and code is None:
            attempt.forgive()
            raise HanseError(
                ErrorCode.SECOND_FACTOR, "code: none is given",
                hint="give the six digits that your authenticator shows",
            )  # fmt: skip
        now, kept = self._clock.now(), person.password
        if kept is not None and self.passwords.is_outdated(kept):
            kept = await self.passwords.hash(password)

        def alter(old: PersonRecord) -> PersonRecord:
            if old.revoked or old.password != person.password or old.totp != person.totp:
                raise HanseError(ErrorCode.CONFLICT, "person: they changed meanwhile", hint="try again")
            given = {} if old.totp is None or code is None else {"totp_step": take_code(old, old.totp, code, now)}
            return old.model_copy(update={"last_sign_in": now, "password": kept, **given})

        person = await self.people.change(person_key(person.name), alter)
        attempt.forgive()
        return person

    async def by_link(self, token: Credential, password: str) -> PersonRecord:
        """The person that a one-time link was made for, who has this password from now on.

        Raises:
            HanseError: UNAUTHENTICATED, GONE; INVALID_INPUT for a password that will not do: the link is still good.
        """
        person = await self.people.read(token.id)
        if person is None or not token.matches(person.link or _NOBODY):
            raise HanseError(
                ErrorCode.UNAUTHENTICATED, "token: this one-time link is not known here, or was used already",
                hint="ask the hub's operator for another",
            )  # fmt: skip
        now = self._clock.now()
        if person.revoked or person.link_expires_at is None or person.link_expires_at <= now:
            raise HanseError(
                ErrorCode.GONE, "token: this one-time link has ended", hint="ask the hub's operator for another"
            )
        check_password(password, person.name)
        link, kept = person.link, await self.passwords.hash(password)

        def alter(old: PersonRecord) -> PersonRecord:
            if old.link != link or old.revoked:
                raise HanseError(ErrorCode.GONE, "token: this one-time link was used already", hint="sign in")
            used = {"link": None, "link_expires_at": None, "last_sign_in": now}
            return with_password(old, kept).model_copy(update=used)

        return await self.people.change(token.id, alter)


_NOBODY = "0" * 64


def take_code(person: PersonRecord, secret: str, code: str, now: datetime) -> int:
    """The step of a person's code; SECOND_FACTOR for one that is wrong, or was taken before."""
    step = totp.taken_step(secret, code, now, after=person.totp_step)
    if step is None:
        raise HanseError(
            ErrorCode.SECOND_FACTOR, "code: it is not the one of now, or was used already",
            hint="wait for the next, and see that the authenticator's clock is right",
        )  # fmt: skip
    return step


def with_password(person: PersonRecord, kept: str) -> PersonRecord:
    """The person with another password: what was open is over, and no browser is known any more."""
    return person.model_copy(
        update={
            "password": kept, "generation": person.generation + 1, "browser_key": randomness.token_hex(32),
        }
    )  # fmt: skip


def with_link(person: PersonRecord, now: datetime) -> tuple[PersonRecord, Credential]:
    """The person with nothing but a new one-time link to come in by, and the link."""
    token = secrets.make(Kind.START, person_key(person.name))
    nothing = {"password": None, "totp": None, "asked_totp": None, "browser_key": randomness.token_hex(32)}
    given = {"link": token.hash, "link_expires_at": now + LINK_FOR, "generation": person.generation + 1}
    return person.model_copy(update={**nothing, **given}), token


def browser_cookie(person: PersonRecord) -> str:
    """A cookie for a browser in which the person has signed in."""
    nonce = randomness.token_hex(8)
    return f"{nonce}.{_signed(person, nonce)}"


def _known(person: PersonRecord | None, cookie: str | None) -> str | None:
    nonce, _, mac = (cookie or "").partition(".")
    if person is None or not person.browser_key or not (nonce + mac).isascii():
        return None
    if not hmac.compare_digest(_signed(person, nonce), mac):
        return None
    return nonce


def _signed(person: PersonRecord, nonce: str) -> str:
    return hmac.new(bytes.fromhex(person.browser_key), f"{person.name} {nonce}".encode(), hashlib.sha256).hexdigest()
