"""What the hub tells about itself, to everybody and to its operator."""

from __future__ import annotations

import asyncio
from collections import Counter

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import OPERATE, PUBLIC, Request, Route
from hanse_fabric import __version__
from hanse_fabric.health import resident_bytes
from hanse_fabric.state import STATE_VERSION
from hanse_schemas.http.hub import HubView, StatusView

FEATURES = ("federated_averaging", "site_code", "custom_pipeline", "initial_model")


async def get_hub(hub: Hub, request: Request) -> HubView:
    return HubView(
        name=hub.info.name,
        version=__version__,
        time=hub.clock.now(),
        bus_url=hub.info.bus_url,
        features=FEATURES,
        compensators=hub.compensators.keys(),
        state_version=STATE_VERSION,
        ca=hub.info.http_ca,
    )


async def get_status(hub: Hub, request: Request) -> StatusView:
    bus_ready, store_ready = await asyncio.gather(hub.bus.ready(), asyncio.to_thread(hub.store.ready))
    projects, participants, runs = await asyncio.gather(
        hub.buckets.projects.list(), hub.buckets.participants.list(), hub.buckets.runs.list()
    )
    return StatusView(
        name=hub.info.name,
        version=__version__,
        instance=hub.info.instance,
        time=hub.clock.now(),
        started_at=hub.started_at,
        bus_ready=bus_ready,
        store_ready=store_ready,
        projects=len(projects),
        participants=sum(not entry.value.revoked for entry in participants),
        participants_online=hub.presence.count_online(),
        runs=dict(Counter(str(entry.value.state) for entry in runs)),
        resident_bytes=resident_bytes(),
    )


ROUTES = (
    Route("GET", "/v1/hub", PUBLIC, get_hub, HubView, "The hub's name, version and time"),
    Route("GET", "/v1/status", OPERATE, get_status, StatusView, "The hub's state, for its operator", unscoped=True),
)  # fmt: skip
