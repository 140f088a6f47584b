"""What the handlers stand on, in one value, and the audit of what they change."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from aiohttp import web

from hanse_coordinator.api.door import address_of
from hanse_coordinator.auth import Caller, KeyRing
from hanse_coordinator.authority import Credentials
from hanse_coordinator.boards import CompensatorBoard, PresenceBoard
from hanse_coordinator.people.entrance import Entrance
from hanse_coordinator.people.held import Held
from hanse_coordinator.people.makers import may_still
from hanse_coordinator.people.provider import Provider, ProviderTerms
from hanse_coordinator.people.records import PersonRecord
from hanse_coordinator.people.sessions import Sessions, SessionTerms
from hanse_coordinator.quotas import ProjectQuotas, Quotas
from hanse_coordinator.records import Buckets, ProjectRecord
from hanse_coordinator.watching.histories import Histories
from hanse_coordinator.watching.studies import Studies
from hanse_fabric.allowance import Allowance
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.messages import AuditEvent
from hanse_fabric.networks import Networks
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.subjects import AUDIT

HUB_AUDIT = "hub"
"""The audit of what belongs to no project. No project may have this name."""

JOINS_AT_ONCE, DOWNLOADS_AT_ONCE, _EVERY_S, _REMEMBERED = 20, 500, 60.0, 65_536


@dataclass(frozen=True, slots=True)
class HubInfo:
    """What the hub tells about itself. CAs are PEM texts that sites need, where they are not public ones (`http_ca`: of
    the API itself); `proxies` are those whose X-Forwarded-For is believed. `region_urls`: where the sites of a region
    reach the bus, where it is not at `bus_url`. `console_url`: where browsers reach the console; empty: not known.
    `local_people`: whether people sign in by passwords of this hub; `provider`: of identities, by which they do.
    `proxy_secret`: what other proxies show."""

    name: str
    instance: str
    bus_url: str
    bus_ca: str | None = None
    store_ca: str | None = None
    http_ca: str | None = None
    invitation_ttl: float = 7 * 86_400.0
    proxies: Networks = ()
    region_urls: Mapping[str, str] = field(default_factory=dict)
    sessions: SessionTerms = field(default_factory=SessionTerms)
    console_url: str = ""
    local_people: bool = True
    provider: ProviderTerms | None = None
    proxy_secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Hub:
    """Everything that handlers use."""

    bus: Bus
    store: ObjectStore
    buckets: Buckets
    keys: KeyRing
    people: Held[PersonRecord]
    entrance: Entrance
    sessions: Sessions
    provider: Provider | None
    histories: Histories
    studies: Studies
    presence: PresenceBoard
    compensators: CompensatorBoard
    credentials: Credentials
    clock: Clock
    info: HubInfo
    started_at: datetime
    quotas: ProjectQuotas
    challenges: Allowance
    """By join token, how often it is joined with."""
    downloads: Allowance
    """By project and key or person, how often outputs are fetched: sites may, and the audit has each."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def on(
        cls,
        bus: Bus,
        store: ObjectStore,
        clock: Clock,
        *,
        credentials: Credentials,
        info: HubInfo,
        quotas: Quotas,
        stopping: asyncio.Event | None = None,
    ) -> Hub:
        """A hub on this bus and store; its boards and keys are current while their `watch` runs."""
        buckets = Buckets.on(bus)
        people = Held(buckets.people, "person")
        keys = KeyRing(buckets.keys, clock, partial(may_still, people))
        return cls(
            bus=bus,
            store=store,
            buckets=buckets,
            keys=keys,
            people=people,
            entrance=Entrance(people, clock),
            sessions=Sessions(buckets.sessions, people, clock, info.sessions, keys.limiter),
            provider=Provider(info.provider, clock) if info.provider is not None else None,
            histories=Histories(bus),
            studies=Studies(store),
            presence=PresenceBoard(bus, clock),
            compensators=CompensatorBoard(bus),
            credentials=credentials,
            clock=clock,
            info=info,
            started_at=clock.now(),
            quotas=ProjectQuotas(quotas, buckets, store, clock, info.instance),
            challenges=Allowance(clock, per_second=1 / _EVERY_S, burst=JOINS_AT_ONCE, most=_REMEMBERED),
            downloads=Allowance(clock, per_second=1 / _EVERY_S, burst=DOWNLOADS_AT_ONCE, most=_REMEMBERED),
            stopping=stopping or asyncio.Event(),
        )

    def watches(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What keeps boards, keys, people and sessions current, each until it is cancelled."""
        return {
            "keys": self.keys.watch(), "people": self.people.watch(), "sessions": self.sessions.held.watch(),
            "presence": self.presence.watch(), "compensators": self.compensators.watch(),
        }  # fmt: skip

    async def admits(self, caller: Caller, project: str) -> bool:
        """Whether somebody who was let in to a project before would be let in now: for answers that last."""
        if caller.session:
            return await self.sessions.opens(caller.session, project)
        return await self.keys.admits(caller.key)  # a key's project never changes

    def address_of(self, http: web.Request) -> str:
        """Whose request it is, as far as proxies are believed."""
        return address_of(http, self.info.proxies, self.info.proxy_secret)

    async def project(self, name: str) -> ProjectRecord:
        """The project; NOT_FOUND if there is none."""
        return (await self.buckets.projects.require(project=name)).value

    async def audit(self, caller: Caller, project: str, action: str, subject: str, **detail: Any) -> None:
        """Record that `caller` did `action` to `subject`."""
        await self.audit_as(caller.actor, caller.authority, project, action, subject, **detail)

    async def audit_as(
        self, actor: str, authority: str, project: str, action: str, subject: str, **detail: Any
    ) -> None:
        """The same for those who are known by something else than a key."""
        event = AuditEvent(
            project=project,
            at=self.clock.now(),
            actor=actor,
            action=action,
            subject=subject,
            authority=authority,
            detail=detail,
        )
        await self.bus.publish(AUDIT.of(project=project), event.encode())
