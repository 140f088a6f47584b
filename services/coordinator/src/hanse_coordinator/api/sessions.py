"""Sessions of people in browsers: opened, looked at, ended; and what people change of their own."""

from __future__ import annotations

from datetime import datetime

from aiohttp import web
from pydantic import SecretStr

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.route import OWN, PUBLIC, Request, Route, answer_json
from hanse_coordinator.people import totp
from hanse_coordinator.people.cookies import (
    BROWSER,
    SESSION,
    check_json,
    check_origin,
    csrf_of,
    drop_cookie,
    read_cookie,
    set_cookie,
)
from hanse_coordinator.people.entrance import browser_cookie, take_code, with_password
from hanse_coordinator.people.passwords import check_password
from hanse_coordinator.people.records import PersonRecord, SessionRecord, person_key
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.secrets import Kind
from hanse_schemas.http.sessions import (
    AskTotp,
    ChangePassword,
    ConfirmTotp,
    Provider,
    RemoveTotp,
    SessionView,
    SignedOut,
    SignIn,
    SignInWays,
    Start,
    TotpSetup,
)


async def sign_in_ways(hub: Hub, request: Request) -> SignInWays:
    return SignInWays(
        local=hub.info.local_people, provider=Provider(label=hub.info.provider.label) if hub.info.provider else None
    )


async def sign_in(hub: Hub, request: Request) -> web.Response:
    _check_local(hub, request.http)
    body: SignIn = request.body
    person = await hub.entrance.by_password(
        body.name, body.password.get_secret_value(), _shown(body.code),
        address=hub.address_of(request.http), browser=read_cookie(request.http, BROWSER),
    )  # fmt: skip
    return await open_session(hub, request.http, person, "password and code" if person.totp else "password")


async def start(hub: Hub, request: Request) -> web.Response:
    """Use a one-time link."""
    _check_local(hub, request.http)
    body: Start = request.body
    address = hub.address_of(request.http)
    try:
        token = secrets.parse(body.token.get_secret_value(), Kind.START)
        with hub.keys.limiter.looking_up(address, "token"):
            person = await hub.entrance.by_link(token, body.password.get_secret_value())
    except HanseError as error:
        if error.code is ErrorCode.UNAUTHENTICATED:
            hub.keys.limiter.failed(address)
        raise
    return await open_session(hub, request.http, person, "one-time link")


async def open_session(hub: Hub, http: web.Request, person: PersonRecord, by: str) -> web.Response:
    """A new session, told to a script of the hub's page."""
    session, shown = await begin_session(hub, http, person, by)
    response = answer_json(_view(hub, person, session.created_at, session.expires_at, csrf_of(shown.secret)), 201)
    give_cookies(http, response, person, shown)
    return response


async def begin_session(
    hub: Hub, http: web.Request, person: PersonRecord, by: str
) -> tuple[SessionRecord, secrets.Credential]:
    """A new session, in place of the one that the browser had."""
    before = read_cookie(http, SESSION)
    if before is not None:
        await _end(hub, before)
    session, shown = await hub.sessions.open(person)
    await hub.audit_as(
        f"person:{person.name}", f"{person.role} ({person.display or person.name}), by {by}", HUB_AUDIT, "session.open",
        f"session:{session.id}", address=hub.address_of(http),
    )  # fmt: skip
    return session, shown


def give_cookies(
    http: web.Request, response: web.StreamResponse, person: PersonRecord, shown: secrets.Credential
) -> None:
    """The session's, and one by which the browser is known from now on."""
    set_cookie(http, response, SESSION, shown.text)
    if person.browser_key:
        set_cookie(http, response, BROWSER, browser_cookie(person), kept=True)


async def get_session(hub: Hub, request: Request) -> SessionView:
    person, session = await _own(hub, request)
    return _view(hub, person, session.created_at, session.expires_at, _csrf(request.http))


async def sign_out(hub: Hub, request: Request) -> web.Response:
    await hub.sessions.end(request.caller.session)
    await hub.audit(request.caller, HUB_AUDIT, "session.end", f"session:{request.caller.session}")
    response = answer_json(SignedOut(), 200)
    drop_cookie(request.http, response, SESSION)
    return response


async def change_password(hub: Hub, request: Request) -> web.Response:
    body: ChangePassword = request.body
    person = await _local(hub, request)
    new = body.new_password.get_secret_value()
    check_password(new, person.name)
    person = await hub.entrance.again(
        person, body.password.get_secret_value(), _shown(body.code),
        session=request.caller.session,
    )  # fmt: skip
    kept = await hub.entrance.passwords.hash(new)
    person = await hub.people.change(person_key(person.name), lambda old: with_password(_same(old, person), kept))
    await hub.audit(request.caller, HUB_AUDIT, "person.password", f"person:{person.name}")
    response = await open_session(hub, request.http, person, "password")
    response.set_status(200)
    return response


async def ask_totp(hub: Hub, request: Request) -> TotpSetup:
    body: AskTotp = request.body
    person = await _local(hub, request)
    if person.totp is not None:
        raise HanseError(ErrorCode.CONFLICT, "totp: there is an authenticator already", hint="remove that one first")
    person = await hub.entrance.again(person, body.password.get_secret_value(), None, session=request.caller.session)
    secret = totp.make_secret()
    await hub.people.change(
        person_key(person.name), lambda old: _same(old, person).model_copy(update={"asked_totp": secret})
    )
    return TotpSetup(secret=secret, uri=totp.address(secret, name=person.name, hub=hub.info.name))


async def confirm_totp(hub: Hub, request: Request) -> SessionView:
    body: ConfirmTotp = request.body
    now, code = hub.clock.now(), body.code.get_secret_value()

    def alter(old: PersonRecord) -> PersonRecord:
        if old.asked_totp is None:
            raise HanseError(ErrorCode.CONFLICT, "totp: none was asked for", hint="ask for one first")
        step = take_code(old, old.asked_totp, code, now)
        return old.model_copy(update={"totp": old.asked_totp, "asked_totp": None, "totp_step": step})

    person = await hub.people.change(person_key((await _local(hub, request)).name), alter)
    await hub.audit(request.caller, HUB_AUDIT, "person.totp", f"person:{person.name}", on=True)
    return await get_session(hub, request)


async def remove_totp(hub: Hub, request: Request) -> SessionView:
    body: RemoveTotp = request.body
    person = await _local(hub, request)
    if person.totp is None:
        raise HanseError(ErrorCode.CONFLICT, "totp: there is no authenticator", hint="nothing is to be removed")
    await hub.entrance.again(
        person, body.password.get_secret_value(), body.code.get_secret_value(), session=request.caller.session
    )
    await hub.people.change(
        person_key(person.name), lambda old: old.model_copy(update={"totp": None, "asked_totp": None})
    )
    await hub.audit(request.caller, HUB_AUDIT, "person.totp", f"person:{person.name}", on=False)
    return await get_session(hub, request)


def _check_local(hub: Hub, http: web.Request) -> None:
    check_json(http)
    check_origin(http)
    if not hub.info.local_people:
        raise HanseError(
            ErrorCode.FORBIDDEN, "password: this hub knows none", hint="sign in by the provider of identities"
        )


async def _end(hub: Hub, cookie: str) -> None:
    try:
        shown = secrets.parse(cookie, Kind.SESSION)
    except HanseError:
        return
    there = hub.sessions.held.get(shown.id)
    if there is not None and shown.matches(there.hash):
        await hub.sessions.end(shown.id)


async def _own(hub: Hub, request: Request) -> tuple[PersonRecord, SessionRecord]:
    person = await hub.people.find(person_key(request.caller.person))
    session = await hub.sessions.held.find(request.caller.session)
    if person is None or session is None:
        raise HanseError(ErrorCode.UNAUTHENTICATED, "session: it is over", hint="sign in again")
    return person, session


async def _local(hub: Hub, request: Request) -> PersonRecord:
    person, _ = await _own(hub, request)
    if person.source != "local":
        raise HanseError(
            ErrorCode.CONFLICT, f"person: {person.name} is known by a provider of identities",
            hint="change it with that provider",
        )  # fmt: skip
    return person


def _same(old: PersonRecord, shown: PersonRecord) -> PersonRecord:
    """The record, where it still has what somebody has just shown; CONFLICT where a reset came between."""
    if old.revoked or (old.generation, old.password, old.totp) != (shown.generation, shown.password, shown.totp):
        raise HanseError(ErrorCode.CONFLICT, "person: they changed meanwhile", hint="try again")
    return old


def _shown(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _csrf(http: web.Request) -> str:
    return csrf_of(secrets.parse(read_cookie(http, SESSION) or "", Kind.SESSION).secret)


def _view(hub: Hub, person: PersonRecord, created_at: datetime, expires_at: datetime, csrf: str) -> SessionView:
    return SessionView(
        person=person.name,
        display=person.display,
        source=person.source,
        role=person.role,
        projects=person.projects,
        totp=person.totp is not None,
        csrf=csrf,
        created_at=created_at,
        expires_at=expires_at,
        idle_seconds=hub.info.sessions.idle_s,
    )


ROUTES = (
    Route("GET", "/v1/sign-in", PUBLIC, sign_in_ways, SignInWays, "How people sign in here"),
    Route("POST", "/v1/session", PUBLIC, sign_in, SessionView, "Sign in; the answer sets the session's cookie",
          body=SignIn, status=201),
    Route("POST", "/v1/session/start", PUBLIC, start, SessionView, "Use a one-time link, and choose a password",
          body=Start, status=201),
    Route("GET", "/v1/session", OWN, get_session, SessionView, "The session that asks", in_person=True),
    Route("DELETE", "/v1/session", OWN, sign_out, SignedOut, "Sign out", in_person=True),
    Route("POST", "/v1/session/password", OWN, change_password, SessionView,
          "Change one's password; all other sessions end, and this one has another cookie", body=ChangePassword,
          in_person=True),
    Route("POST", "/v1/session/totp", OWN, ask_totp, TotpSetup, "Ask for an authenticator's secret", body=AskTotp,
          in_person=True),
    Route("POST", "/v1/session/totp/confirm", OWN, confirm_totp, SessionView,
          "Show the authenticator's first code; codes are asked for from now on", body=ConfirmTotp, in_person=True),
    Route("POST", "/v1/session/totp/remove", OWN, remove_totp, SessionView, "Remove the authenticator", body=RemoveTotp,
          in_person=True),
)  # fmt: skip
