"""A site's token on the bus, renewed before it ends: at a door, or over HTTPS where the site is too late for that."""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from hanse_fabric.bus.issuing import TOKEN_S, expires_at, region_of
from hanse_fabric.bus.jwt import credentials, read_credentials
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.doors.asking import Doors
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.subjects import Door
from hanse_schemas.http.joining import Renew, Renewed, renewal_statement
from hanse_schemas.http.reading import read, write
from hanse_site.identity import SiteIdentity
from hanse_site.joining import post

_LOG = logging.getLogger(__name__)
_SPARE_S = 60.0
_AGAIN_S = 30.0


class Renewable(Protocol):
    """A connection that can go on with another token."""

    async def renew(self, token: str) -> None: ...


async def current_token(identity: SiteIdentity, *, ca: Path | None = None, clock: Clock = SYSTEM_CLOCK) -> str:
    """The token in the identity's home; another where it has ended, or is of release 0.1.0, which let sites into the
    hub's own account.

    Raises:
        HanseError: UNAVAILABLE; UNAUTHENTICATED or FORBIDDEN where the hub gives none (the site was revoked).
    """
    token, _ = read_credentials(await asyncio.to_thread(identity.creds.read_text))
    if region_of(token) is not None and seconds_left(token, clock) > _SPARE_S:
        return token
    return await renew_over_https(identity, ca=ca, clock=clock)


def token_ended(identity: SiteIdentity, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Whether the token in the identity's home has ended, so that nothing is known of the site's rights."""
    token, _ = read_credentials(identity.creds.read_text())
    return seconds_left(token, clock) <= 0


async def renew_over_https(identity: SiteIdentity, *, ca: Path | None = None, clock: Clock = SYSTEM_CLOCK) -> str:
    """Ask the hub's API, with the site's signature. Raises as `current_token`."""
    body = signed_renewal(identity.project, identity.participant, identity.signing_key, clock.now())
    url = f"{identity.record.hub}/v1/renew"
    renewed = read(Renewed, await post(url, body, ca or identity.hub_ca, 30.0, clock))
    return await asyncio.to_thread(_keep, identity, renewed.bus_jwt)


def signed_renewal(project: str, participant: str, key: SigningKey, now: datetime) -> dict[str, Any]:
    """The body that asks for another token."""
    signature = key.sign(renewal_statement(project=project, participant=participant, sent_at=now))
    signed = base64.b64encode(signature)
    return write(Renew, project=project, participant=participant, sent_at=now, signature=signed)


async def keep_renewed(bus: Renewable, doors: Doors, identity: SiteIdentity, token: str) -> None:
    """Renew until cancelled: at half of the token's life, a little later or earlier than others."""
    clock = doors.bus.clock
    while True:
        wait = seconds_left(token, clock) - TOKEN_S / 2 * random.uniform(0.8, 1.2)  # noqa: S311 - only spreads sites
        await clock.sleep(max(0.0, wait))
        try:
            if seconds_left(token, clock) > 2 * _SPARE_S:
                token = await asyncio.to_thread(_keep, identity, (await doors.ask(Door.RENEW)).decode())
            else:
                token = await renew_over_https(identity, clock=clock)
        except HanseError as error:
            if error.code in (ErrorCode.FORBIDDEN, ErrorCode.UNAUTHENTICATED):
                raise
            _LOG.warning("the token could not be renewed: %s", error.message)
            await clock.sleep(_AGAIN_S)
            continue
        await bus.renew(token)


def seconds_left(token: str, clock: Clock) -> float:
    """Until a token ends."""
    end = expires_at(token)
    return TOKEN_S if end is None else end - clock.now().timestamp()


def _keep(identity: SiteIdentity, token: str) -> str:
    _, key = read_credentials(identity.creds.read_text())
    write_durably(identity.creds, credentials(token, key).encode())
    return token
