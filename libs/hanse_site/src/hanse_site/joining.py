"""What a site and the hub say to each other when the site joins: a challenge, a proof of its keys, credentials."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import ValidationError

from hanse_fabric import __version__
from hanse_fabric.bus.addresses import servers_of
from hanse_fabric.bus.nkeys import KeyPair
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.participants import Consent
from hanse_fabric.proxies import refusals, refused_by_proxy, session_options
from hanse_fabric.tls import client_context
from hanse_schemas.http.errors import ErrorAnswer
from hanse_schemas.http.joining import AskChallenge, Challenge, Join, Joined, JoinProof, Preview, check_clocks
from hanse_schemas.http.reading import read, write
from hanse_site.identity import parse_schema
from hanse_site.unreached import certificate_error, failures, unreached, why

_MAX_REPLY = 1 << 20


async def preview(hub: str, token: str, ca: Path | None, *, timeout: float, clock: Clock) -> Preview:
    """What a token is for, before anything is joined; `join` has the arguments.

    Raises:
        HanseError: TAMPERED where the terms are not those of their digest, or of another project or schema than they
            are shown with; NOT_FOUND for a hub of release 0.1.0; else what the hub answered.
    """
    try:
        told = read(Preview, await post(f"{hub}/v1/join/preview", write(AskChallenge, token=token), ca, timeout, clock))
    except ValidationError as error:
        raise _no_hub(hub, explain(error)) from None
    check_shown(hub, told)
    return told


def check_shown(hub: str, told: Preview) -> None:
    """Whether terms are those of their digest, and of the project and the schema that they are shown with.

    Raises:
        HanseError: TAMPERED.
    """
    terms = told.terms
    if terms is not None and (terms.digest, terms.project, terms.data_schema) != (
        told.terms_digest, told.project, told.data_schema
    ):  # fmt: skip
        raise HanseError(
            ErrorCode.TAMPERED, f"hub {hub}: its project {told.project} is not as the terms say that it shows",
            hint="ask the project's owner; nothing was joined",
        )  # fmt: skip


async def join(
    hub: str, token: str, signing: SigningKey, bus: KeyPair, ca: Path | None, *, timeout: float, clock: Clock,
    consent: Consent | None = None,
) -> Joined:  # fmt: skip
    """Join with a token and one's keys.

    Args:
        hub: its address, without a slash at the end.
        ca: PEM file of the authority that signed its certificate; None for the system's.
        consent: to the project's terms, where it has some.
        timeout: seconds to wait for each of its two answers.

    Raises:
        HanseError: CLOCK_SKEW; UNAVAILABLE, for a hub that asks for no proof, too; else what the hub answered.
    """
    challenge = await _ask_challenge(hub, token, ca, timeout, clock)
    body = proved(token, challenge, signing, bus, clock.now(), consent)
    return _joined(hub, await post(f"{hub}/v1/join", body, ca, timeout, clock))


def proved(
    token: str, challenge: str, signing: SigningKey, bus: KeyPair, now: datetime, consent: Consent | None = None
) -> dict[str, Any]:
    """The body that joins, with a proof that both keys are here."""
    key = base64.b64encode(signing.public_bytes).decode()
    secret = secrets.parse(token, secrets.Kind.JOIN_TOKEN).hash
    proof = JoinProof(challenge=challenge, token=secret, public_key=key, bus_key=bus.public).canonical()
    return write(
        Join, token=token, public_key=key, bus_key=bus.public, version=__version__, sent_at=now, challenge=challenge,
        signature=base64.b64encode(signing.sign(proof)), bus_signature=base64.b64encode(bus.sign(proof)),
        **({} if consent is None else {"consent": consent}),
    )  # fmt: skip


async def _ask_challenge(hub: str, token: str, ca: Path | None, timeout: float, clock: Clock) -> str:
    try:
        told = await post(f"{hub}/v1/join/challenge", write(AskChallenge, token=token), ca, timeout, clock)
        return read(Challenge, told).challenge
    except ValidationError as error:
        raise _no_hub(hub, explain(error)) from None
    except HanseError as error:
        if error.code is ErrorCode.NOT_FOUND:
            raise HanseError(
                ErrorCode.UNAVAILABLE, f"hub {hub}: it is older than this software, and asks for no proof of its keys",
                hint="have the hub's operator upgrade it first; or join by release 0.1.0, and upgrade then",
            ) from None  # fmt: skip
        raise


async def post(url: str, body: dict[str, Any], ca: Path | None, timeout: float, clock: Clock) -> Any:
    """What the hub answers to a request without an API key.

    Raises:
        HanseError: CLOCK_SKEW; UNAVAILABLE; else what the hub answered.
    """
    return await _exchanged("POST", url, ca, timeout, clock, json=body)


async def get(url: str, key: str, ca: Path | None, timeout: float, clock: Clock) -> Any:
    """What the hub answers to who reads with an API key. Raises as `post`."""
    return await _exchanged("GET", url, ca, timeout, clock, headers={"Authorization": f"Bearer {key}"})


async def _exchanged(method: str, url: str, ca: Path | None, timeout: float, clock: Clock, **sent: Any) -> Any:
    context = client_context(ca) if ca is not None or url.startswith("https:") else True
    limit = aiohttp.ClientTimeout(total=timeout)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, **session_options(url)) as session,
            session.request(method, url, ssl=context, allow_redirects=False, **sent) as answer,
        ):
            check_clock(answer.headers.get("Date"), clock.now())
            data = await answer.content.read(_MAX_REPLY)
            status = answer.status
    except refusals() as error:
        raise refused_by_proxy(url, error) from None
    except failures() as error:
        if certificate_error(error) is not None:
            raise HanseError(
                ErrorCode.UNAVAILABLE, f"hub {url}: its certificate is refused ({why(error)})",
                hint="give the file of its authority: --ca FILE, for a datapod --hub-ca FILE, in Python ca=FILE",
            ) from error  # fmt: skip
        raise unreached(url, error) from error
    try:
        said = json.loads(data)
        if status in (200, 201):
            return said
        told = read(ErrorAnswer, said).error
    except (ValueError, RecursionError):
        raise _no_hub(url, f"status {status}, not the JSON of a hub") from None
    raise HanseError(ErrorCode.of(told.code), told.message, hint=told.hint)


def _joined(hub: str, body: Any) -> Joined:
    try:
        parse_schema(body["schema"])
        joined = read(Joined, body)
        servers_of(joined.bus_url, f"hub {hub}: bus_url")
        return joined
    except ValidationError as error:
        raise _no_hub(hub, explain(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _no_hub(hub, "its answer has no schema") from None


def _no_hub(url: str, reason: str) -> HanseError:
    return HanseError(ErrorCode.UNAVAILABLE, f"hub {url}: {reason}", hint="is this the address of a Hanse hub?")


def check_clock(date: str | None, here: datetime) -> None:
    """Compare this machine's clock with an HTTP Date header.

    Raises:
        HanseError: CLOCK_SKEW naming both times when they are more than ALLOWED_SKEW_S apart.
    """
    if date is None:
        return
    try:
        theirs = parsedate_to_datetime(date)
    except ValueError:
        return
    if theirs.tzinfo is None:  # of "-0000": UTC, at a place that is not told
        theirs = theirs.replace(tzinfo=UTC)
    check_clocks(here, theirs, field="clock")
