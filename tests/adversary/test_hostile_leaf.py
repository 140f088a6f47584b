"""Whoever runs a region's leaf node, and would have the sites of another: by its key, and by what they have signed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from hanse_coordinator.runs.roster import Roster
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.doors.asking import Doors
from hanse_fabric.doors.frames import read_answer, write_request
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import DoorRequest, ParticipantRecord, Presence
from hanse_fabric.messages.doors import KnownTasks
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import DOORS, PARTICIPANTS, TELL, Door, Role
from hub_doors import coordinator_doors, take_in, while_running
from servers import NatsServer

WITHIN_S = 60
NORTH = {"project": "triage", "participant": "north"}


class Coast:
    """A hub with a region `eu` of its own leaf nodes, to whose key the test has come, and a site north."""

    def __init__(self, hub: NatsBus, leaf: NatsBus, key: SigningKey, roster: Roster) -> None:
        self.hub, self.leaf, self.key, self.roster = hub, leaf, key, roster

    def signed(self, kind: Door, content: bytes = b"") -> bytes:
        """What north has signed and the leaf node's operator has come by, as when it connected there."""
        return write_request(self.key, DoorRequest(kind=kind.value, nonce=secrets.token_hex(16), **NORTH), content)

    async def brings(self, kind: Door, signed: bytes, region: str) -> bytes:
        return read_answer(
            signed, await self.leaf.request(DOORS[kind].of(region=region, **NORTH), signed, timeout=WITHIN_S)
        )

    async def told(self) -> bool:
        """Whether the leaf's operator hears what north is told next."""
        async with self.leaf.hear(TELL.of(region="eu", **NORTH)) as told:
            await anext(told)
            await self.hub.tell(TELL.of(region=self.roster.region_of(**NORTH), **NORTH), b"a task of north's")
            await self.hub.tell(TELL.of(region="eu", **NORTH), b"the end")
            heard = await asyncio.wait_for(anext(told), WITHIN_S)
        return heard is not None and heard.data == b"a task of north's"


@pytest.fixture(params=["hub"])
async def coast(request: pytest.FixtureRequest, mortal_nats: NatsServer) -> AsyncIterator[Coast]:
    """`param`: the region that north is enrolled in."""
    authority = mortal_nats.authority
    authority.add_region("eu")
    await authority.settle({}, url=mortal_nats.url)  # as coordinators do at their start: the servers run on
    hub = await mortal_nats.connect(Role.COORDINATOR)
    creds, _ = authority.leaf_credentials("eu", "leaf-1")
    leaf = await NatsBus.connect(mortal_nats.url, "leaf", creds=creds, inbox_prefix="_INBOX.a.b", timeout=WITHIN_S)
    keys = await take_in(hub, "north", project="triage", run="r", step="s", region=request.param)
    roster = Roster(hub, Bucket(hub, PARTICIPANTS, ParticipantRecord), SYSTEM_CLOCK)
    async with coordinator_doors(hub), while_running(roster.watch()):
        await asyncio.wait_for(roster.ready.wait(), WITHIN_S)
        yield Coast(hub, leaf, keys["north"], roster)
    await leaf.close()
    await hub.close()


async def test_a_leafs_key_carries_nothing_of_another_regions_sites(coast: Coast) -> None:
    life = Presence(version="1", sent_at=datetime.now(UTC), **NORTH).encode()
    for kind, content in ((Door.PRESENCE, life), (Door.TASKS, b""), (Door.RENEW, b"")):
        for region in ("hub", "eu"):  # the bus refuses the one, the doors the other
            with pytest.raises(HanseError) as refusal:
                await coast.brings(kind, coast.signed(kind, content), region)
            assert refusal.value.code is ErrorCode.FORBIDDEN
            assert region == "hub" or refusal.value.message == "region: north is enrolled in 'hub', and asks in 'eu'"
    assert not await coast.told()


@pytest.mark.parametrize("coast", ["eu"], indirect=True)
@pytest.mark.control("test_a_leafs_key_carries_nothing_of_another_regions_sites")
async def test_control_of_its_own_regions_sites_it_carries_everything(coast: Coast) -> None:
    life = Presence(version="1", sent_at=datetime.now(UTC), **NORTH).encode()
    await coast.brings(Door.PRESENCE, coast.signed(Door.PRESENCE, life), "eu")
    assert await coast.told()


@pytest.mark.control("test_a_leafs_key_carries_nothing_of_another_regions_sites")
async def test_control_doors_that_believe_where_a_request_comes_from_give_it_another_regions_site(
    coast: Coast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParticipantRecord, "connects_in", "eu")
    life = Presence(version="1", sent_at=datetime.now(UTC), **NORTH).encode()
    await coast.brings(Door.PRESENCE, coast.signed(Door.PRESENCE, life), "eu")
    assert await coast.told()


@pytest.mark.no_attack("an honest site, in an honest region")
async def test_a_site_of_a_region_that_was_added_to_a_running_hub_works_there(mortal_nats: NatsServer) -> None:
    authority = mortal_nats.authority
    hub = await mortal_nats.connect(Role.COORDINATOR)
    keys = await take_in(hub, "north", project="triage", run="r", step="s", region="eu")
    with pytest.raises(HanseError, match="region: 'eu' is not one of hub"):
        authority.participant_jwt("triage", "north", KeyPair.create(KeyKind.USER).public, region="eu")
    authority.add_region("eu")
    await authority.settle({}, url=mortal_nats.url)
    site, _ = await mortal_nats.enrol("triage", "north", region="eu")
    async with coordinator_doors(hub):
        doors = Doors(site, "triage", "north", keys["north"], "eu")
        assert await doors.ask(Door.TASKS, KnownTasks().encode(), timeout=WITHIN_S)
        with pytest.raises(HanseError) as refusal:
            await Doors(site, "triage", "north", keys["north"], "hub").ask(Door.TASKS, timeout=WITHIN_S)
        assert refusal.value.code is ErrorCode.FORBIDDEN
    await site.close()
    await hub.close()
