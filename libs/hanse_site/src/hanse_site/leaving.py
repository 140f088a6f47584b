"""A site ends its own membership: the hub is told by the site's signature, and voids its keys."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.identity.keys import SigningKey
from hanse_schemas.http.joining import ToLeave, leaving_statement
from hanse_schemas.http.reading import write
from hanse_site.identity import SiteIdentity
from hanse_site.joining import post

_TIMEOUT_S = 30.0


def leave_url(identity: SiteIdentity) -> str:
    """Where it is told."""
    return f"{identity.record.hub}/v1/leave"


async def tell_leaving(identity: SiteIdentity, reason: str, clock: Clock = SYSTEM_CLOCK) -> None:
    """Tell the hub. Telling it twice is telling it once.

    Args:
        reason: for the project's owner; empty: none.

    Raises:
        HanseError: UNAVAILABLE; TAMPERED where the hub knows no such site, or another by its name; CLOCK_SKEW.
    """
    body = signed_leaving(identity.project, identity.participant, identity.signing_key, reason, clock.now())
    await post(leave_url(identity), body, identity.hub_ca, _TIMEOUT_S, clock)


def signed_leaving(project: str, participant: str, key: SigningKey, reason: str, now: datetime) -> dict[str, Any]:
    """The body that tells it."""
    statement = leaving_statement(project=project, participant=participant, reason=reason, sent_at=now)
    signature = base64.b64encode(key.sign(statement))
    return write(
        ToLeave, project=project, participant=participant, reason=reason, sent_at=now, signature=signature
    )  # fmt: skip
