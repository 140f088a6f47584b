"""Enrolling: a one-time token becomes an identity in the participant's home folder.

The keys are on the disk before the token is shown to the hub, and the hub takes the same token again from the same
key: a crash at any moment leaves a home that the same command completes.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import sync_folder, write_durably
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.folders import no_address
from hanse_fabric.identity import secrets
from hanse_fabric.identity.keys import SigningKey
from hanse_schemas.http.joining import Joined, Preview
from hanse_schemas.terms import ProjectTerms
from hanse_site.consent import AgreedTerms, agreement, keep, require_digest, signed
from hanse_site.identity import (
    BOUND,
    BUS_CA,
    BUS_CREDS,
    BUS_SEED,
    HUB_CA,
    RECORD,
    SIGNING_KEY,
    STORE_CA,
    SiteIdentity,
    SiteRecord,
    load_identity,
)
from hanse_site.joining import join, preview
from hanse_site.told_ca import told_ca


async def enrol(
    url: str,
    token: str,
    home: Path,
    ca: Path | None = None,
    *,
    ca_fingerprint: str | None = None,
    accept: str = "",
    by: str = "",
    timeout: float = 30.0,
    clock: Clock = SYSTEM_CLOCK,
) -> SiteIdentity:
    """Join a project with a token, or find that this home has joined with it already.

    Args:
        url: the hub, `https://...`.
        token: `join_<id>_<secret>`, as the project's owner handed it over.
        home: folder of the participant's state; made when absent, readable by its owner alone.
        ca: PEM file of the authority that signed the hub's certificate; None for the system's.
        ca_fingerprint: of that authority, instead of its file: the hub is asked for it, and believed by this alone.
        accept: digest of the project's terms, by which the site agrees to them; empty: to none.
        by: who agrees; empty: who runs this.
        timeout: seconds to wait for the hub.

    Raises:
        HanseError: INVALID_INPUT for a malformed token, URL or fingerprint; TAMPERED for an authority of another
            fingerprint, or a hub that shows some terms and joins to others; CONFLICT when the home belongs to another
            enrolment, or where the project has other terms than `accept` says;
            CLOCK_SKEW; UNAVAILABLE; NO_SPACE; else what the hub answered (GONE for a used or expired token).
    """
    token_id = _token_id(token)
    if not url.startswith(("http://", "https://")):
        raise invalid("hub", url, "an http:// or https:// URL")
    found = await asyncio.to_thread(load_identity, no_address(home, "home"))
    if found is not None:
        if found.record.token_id == token_id:
            return found
        raise HanseError(
            ErrorCode.CONFLICT,
            f"{home}: enrolled already, as {found.participant} in {found.project}",
            hint="give another --home for another enrolment",
        )
    signing, bus = await asyncio.to_thread(_own_keys, home)
    hub = url.rstrip("/")
    if ca_fingerprint is not None:
        if ca is not None:
            raise invalid("ca_fingerprint", ca_fingerprint, "needed where the authority's file is given")
        pem = await told_ca(hub, ca_fingerprint, timeout=timeout)
        ca = home / HUB_CA
        await asyncio.to_thread(write_durably, ca, pem)
    made = consent = None
    if accept:
        shown = await preview(hub, token, ca, timeout=timeout, clock=clock)
        made = _agreed(shown, accept, by, clock)
        consent = signed(made, shown.participant, signing)
    reply = await join(hub, token, signing, bus, ca, timeout=timeout, clock=clock, consent=consent)
    if made is not None:
        check_joined(hub, made.terms, reply)
        await asyncio.to_thread(keep, home, made)
    return await asyncio.to_thread(_store, home, hub, token_id, bus, reply, clock.now(), ca)


def check_joined(hub: str, shown: ProjectTerms, reply: Joined) -> None:
    """Whether a hub has joined the site to what it had shown.

    Raises:
        HanseError: TAMPERED.
    """
    if (reply.project, reply.data_schema) != (shown.project, shown.data_schema):
        raise HanseError(
            ErrorCode.TAMPERED, f"hub {hub}: it joins this site to something else than the terms that it has shown",
            hint="tell the project's owner; the site has not joined",
        )  # fmt: skip


def _agreed(shown: Preview, accept: str, by: str, clock: Clock) -> AgreedTerms:
    if shown.terms is None:
        raise HanseError(
            ErrorCode.CONFLICT, f"accept: project {shown.project} has no terms to agree to", hint="join without it"
        )
    require_digest(shown.terms, accept)
    return agreement(shown.terms, by, clock)


def _token_id(token: str) -> str:
    credential = secrets.parse(token.strip(), secrets.Kind.JOIN_TOKEN)
    # The secret counts too, so that a mistyped token is not taken for the one that was used.
    return f"{credential.id}-{credential.hash[:16]}"


def _own_keys(home: Path) -> tuple[SigningKey, KeyPair]:
    """The keys of `home`, made where they are missing. They are durable before this returns."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    signing, seed = SigningKey.load_or_create(home / SIGNING_KEY), home / BUS_SEED
    if not seed.exists():
        write_durably(seed, KeyPair.create(KeyKind.USER).seed.encode())
    sync_folder(home)
    return signing, KeyPair.from_seed(seed.read_text())


def _store(
    home: Path, hub: str, token_id: str, bus: KeyPair, reply: Joined, now: datetime, ca: Path | None
) -> SiteIdentity:
    """Write what the hub gave. The record is written last: where it is, everything is there."""
    write_durably(home / BUS_CREDS, credentials(reply.bus_jwt, bus).encode())
    for name, pem in ((BUS_CA, reply.bus_ca), (STORE_CA, reply.store_ca), (HUB_CA, ca and ca.read_text())):
        if pem:
            write_durably(home / name, pem.encode())
    write_durably(home / BOUND, b"")  # a hub that asks for a proof of keys binds its requests, too
    record = SiteRecord(
        hub=hub,
        hub_name=reply.hub_name,
        project=reply.project,
        participant=reply.participant,
        bus_url=reply.bus_url,
        api_key=reply.api_key,
        data_schema=reply.data_schema,
        token_id=token_id,
        joined_at=now,
    )
    write_durably(home / RECORD, record.encode())
    return SiteIdentity(home, record)
