"""One participant of this process, from enrolment to its last task: what `run` starts for each home folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from hanse_datapod.agent.loop import Agent
from hanse_datapod.home.approvals import keep_approved, with_approved
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.member import no_member
from hanse_datapod.home.outbox import CONSENT, Leaving, Outbox
from hanse_datapod.home.place import require_place
from hanse_datapod.policy.site_policy import Policy, load_policy
from hanse_datapod.settings import DatapodSettings
from hanse_datapod.worker.foreign.source import codes_at, source_at
from hanse_datapod.worker.port import Worker
from hanse_fabric.clock import Clock
from hanse_fabric.durable import sole_owner
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site import SiteIdentity, SiteLink, enrol, load_identity
from hanse_site.renewal import token_ended

T = TypeVar("T")
_log = logging.getLogger(__name__)


async def take_part(
    home: Path, worker: Worker, policy: Policy, settings: DatapodSettings, *, token: str,
    on_ready: Callable[[], None], clock: Clock,
) -> None:  # fmt: skip
    """Join if need be, connect, and work until cancelled. Servers that are away are waited for.

    Args:
        token: that a home without an identity joins with; empty: it cannot.

    Raises:
        HanseError: LOCKED; NOT_FOUND when there is neither identity nor token; TAMPERED for a damaged outbox log,
            or a home that was copied or restored;
            FORBIDDEN or UNAUTHENTICATED when the hub has revoked this participant (in a group, once it worked).
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(sole_owner(home))
        outbox = Outbox(home, clock)
        stack.callback(outbox.close)
        await asyncio.to_thread(require_place, home)
        journal = TaskJournal(home, clock=clock)
        stack.callback(journal.close)
        identity = await _retry_while_away("hub", lambda: join(home, outbox, settings, token, clock), clock)
        while True:
            link = await _retry_while_away(
                "bus",
                lambda: SiteLink.connect(
                    identity, cert=settings.bus_cert, key=settings.bus_key, heartbeat=settings.bus_heartbeat
                ),
                clock,
            )  # fmt: skip
            agent = Agent(
                link, worker, home=home, policy=policy, schema=identity.schema, journal=journal, outbox=outbox,
                studies_at_once=settings.studies_at_once,
            )  # fmt: skip
            on_ready()
            _log.info("taking part", extra={"project": identity.project, "participant": identity.participant})
            try:
                await agent.run()
            except* HanseError:
                # A machine that slept has missed its renewals. The hub tells, over HTTPS, whether it was revoked.
                if not await asyncio.to_thread(token_ended, identity, clock):
                    raise
                _log.info(
                    "the token ended meanwhile, another is asked for", extra={"participant": identity.participant}
                )
            finally:
                await link.close()


async def join(home: Path, outbox: Outbox, settings: DatapodSettings, token: str, clock: Clock) -> SiteIdentity:
    """The home's identity, by enrolling where it has none. That it asked to join is in the outbox log.

    Raises:
        HanseError: NOT_FOUND when there is neither identity nor token; what `enrol` raises.
    """
    identity = await asyncio.to_thread(load_identity, home)
    if identity is not None:
        return identity
    if not settings.join_url or not token:
        raise no_member(home)
    await asyncio.to_thread(outbox.append, *joining(settings.join_url, settings.accept))
    return await enrol(settings.join_url, token, home, settings.hub_ca, accept=settings.accept, clock=clock)


def joining(hub: str, accept: str) -> list[Leaving]:
    """What leaves when a site joins, and when it agrees to terms by it."""
    leaving = [Leaving("join", f"{hub}/v1/join", 0)]
    return [*leaving, Leaving(CONSENT, f"{hub}/v1/join", 0, accept)] if accept else leaving


def read_policy(path: Path | None, code: Path | None, homes: Sequence[Path] = (), *, strict: bool = False) -> Policy:
    """The policy; it must allow the site code that was given, a file or all files of a folder. Where it lets the
    administrator approve code here, code that is not approved may wait for that, unless this is `strict`.

    Raises:
        HanseError: NOT_FOUND, INVALID_INPUT; POLICY when the code's digest is not approved.
    """
    policy = load_policy(path)
    policy.site_code.foreign.require()
    if strict or not policy.site_code.approvals:
        for allowed in [with_approved(policy, home) for home in homes] or [policy]:
            for place in codes_at(code) if code is not None else []:
                allowed.check_code(source_at(place).digest)
    for home in homes:
        keep_approved(home, policy, code)
    return policy


async def _retry_while_away(what: str, action: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Do `action`, and try again as long as the other side is away: a site may start before its hub."""
    wait = 0.2
    while True:
        try:
            return await action()
        except HanseError as error:
            if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                raise
            _log.info(f"waiting for the {what}", extra={"reason": error.message})
        await clock.sleep(wait)
        wait = min(wait * 1.5, 5.0)
