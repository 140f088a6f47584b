"""Signing in by a provider of identities: the browser goes there, and comes back with a code."""

from __future__ import annotations

import logging
import secrets

from aiohttp import web

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import PUBLIC, Request, Route, answer_json
from hanse_coordinator.api.sessions import begin_session, give_cookies
from hanse_coordinator.people.cookies import (
    SIGN_IN,
    check_json,
    check_origin,
    drop_cookie,
    read_cookie,
    set_sign_in_cookie,
)
from hanse_coordinator.people.provider import Identity, Provider, RefusedError
from hanse_coordinator.people.records import PersonRecord, person_key
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.names import derive_id
from hanse_schemas.http.people import Rights
from hanse_schemas.http.sessions import AskProvider, BackFromProvider, ToProvider

CALLBACK = "/v1/session/provider/callback"
_LOG = logging.getLogger(__name__)


async def go_to_provider(hub: Hub, request: Request) -> web.Response:
    check_json(request.http)
    check_origin(request.http)
    secret = secrets.token_urlsafe(32)
    try:
        url = await _provider(hub).address(secret)
    except RefusedError as error:
        _LOG.warning("the provider of identities cannot be used: %s", error.message)
        raise HanseError(
            ErrorCode.UNAVAILABLE, "provider: it cannot be used now", hint="the coordinator's log has more"
        ) from None
    response = answer_json(ToProvider(url=url), 200)
    set_sign_in_cookie(request.http, response, secret)
    return response


async def back_from_provider(hub: Hub, request: Request) -> web.Response:
    """Leads to the page in any case, which is told by one word why somebody is not let in."""
    http, provider = request.http, _provider(hub)
    address, limiter = hub.address_of(http), hub.keys.limiter
    body: BackFromProvider = request.query
    try:
        secret = read_cookie(http, SIGN_IN)
        if secret is None:
            raise RefusedError("state", "cookie: the browser was not sent by this hub, or ten minutes ago")
        with limiter.looking_up(address, "state"):
            found = await provider.identify(secret, body.model_dump(exclude_none=True))
        person = await _note(hub, provider, found)
    except HanseError as error:
        word = error.word if isinstance(error, RefusedError) else "unavailable"
        if word in ("state", "token"):
            limiter.failed(address)
        _LOG.warning("somebody was not let in by the provider of identities: %s", error.message)
        response = web.Response(status=303, headers={"Location": f"/#/sign-in/refused/{word}"})
    else:
        _, shown = await begin_session(hub, http, person, f"provider {provider.terms.issuer}")
        response = web.Response(status=303, headers={"Location": "/"})
        give_cookies(http, response, person, shown)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    drop_cookie(http, response, SIGN_IN)
    return response


async def _note(hub: Hub, provider: Provider, found: Identity) -> PersonRecord:
    """The record of somebody whom the provider vouches for: as of now, with what they may now."""
    name = "oidc-" + derive_id(provider.terms.issuer, found.subject)[:16]
    key, now = person_key(name), hub.clock.now()
    there = await hub.people.read(key)
    if there is not None and there.revoked:
        raise RefusedError("revoked", f"{name} was revoked here")
    if found.rights is None:
        if there is not None:  # what they had open is over, too
            await hub.people.change(key, lambda old: old.model_copy(update={"generation": old.generation + 1}))
        raise RefusedError("no-role", f"{name} ({found.display}) is in no group that may do anything here")
    rights: Rights = found.rights
    told = {"display": found.display, "role": rights.role, "projects": rights.projects, "last_sign_in": now}
    if there is not None:
        return await hub.people.change(key, lambda old: old.model_copy(update=told))
    record = PersonRecord.model_validate(
        {"name": name, "source": "provider", "created_at": now, "created_by": f"provider:{provider.terms.issuer}"}
        | told
    )
    return await hub.people.create(key, record)


def _provider(hub: Hub) -> Provider:
    if hub.provider is None:
        raise HanseError(
            ErrorCode.NOT_FOUND, "provider: this hub has none of identities", hint="sign in by name and password"
        )
    return hub.provider


ROUTES = (
    Route("POST", "/v1/session/provider", PUBLIC, go_to_provider, ToProvider,
          "Where the browser goes to sign in by the provider of identities", body=AskProvider),
    Route("GET", CALLBACK, PUBLIC, back_from_provider, None, "Where the provider of identities sends people back",
          query=BackFromProvider, status=303),
)  # fmt: skip
