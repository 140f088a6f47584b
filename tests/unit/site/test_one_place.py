"""A home that was copied and runs twice: the hub sees two, refuses the second, and tells the project's owner."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_datapod.home.place import accept_place, require_place, told_place
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import AuditEvent
from hanse_fabric.subjects import AUDIT, PRESENCE
from hanse_schemas.schema import OpenSchema
from hanse_site import SiteIdentity, SiteLink
from hanse_site.identity import SIGNING_KEY, SiteRecord
from hub_doors import coordinator_doors

BEFORE_AWAY_S, AWAY_S = 30.0, 60.0


def identity_in(home: Path) -> SiteIdentity:
    SigningKey.load_or_create(home / SIGNING_KEY)
    record = SiteRecord(
        hub="http://hub.example", hub_name="hub", project="triage", participant="north", bus_url="nats://hub.example",
        api_key="", data_schema=OpenSchema(), token_id="t", joined_at=datetime.now(UTC),
    )  # fmt: skip
    return SiteIdentity(home, record)


@in_virtual_time
async def test_of_a_home_and_its_copy_the_second_is_refused_until_the_first_is_silent(
    clock: Clock, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    require_place(home)
    first = identity_in(home)
    copy = Path(shutil.copytree(home, tmp_path / "another machine"))
    with pytest.raises(HanseError, match="was copied, moved or restored"):
        require_place(copy)
    accept_place(copy)  # its administrator says that it was moved, and leaves the first one running
    second = identity_in(copy)
    there, elsewhere = told_place(home, first.signing_key), told_place(copy, second.signing_key)
    assert there == told_place(home, first.signing_key) != elsewhere

    bus = MemoryBus(MemoryBroker(clock))
    async with coordinator_doors(bus, keys={"north": first.signing_key.public_bytes}):
        original, copied = (SiteLink(bus, identity, None) for identity in (first, second))
        await original.presence(place=there)
        for _ in range(2):
            with pytest.raises(HanseError, match="its home was copied, and runs twice") as refusal:
                await copied.presence(place=elsewhere)
            assert refusal.value.code is ErrorCode.CONFLICT
        await original.presence(place=there)  # also where it was restarted, it lies where it was
        await clock.sleep(BEFORE_AWAY_S)
        with pytest.raises(HanseError, match="stop one of them"):
            await copied.presence(place=elsewhere)
        await clock.sleep(AWAY_S)
        await copied.presence(place=elsewhere)
        with pytest.raises(HanseError, match="runs twice"):
            await original.presence(place=there)
    # Another coordinator, which has seen neither, knows the last sign of life that is stored.
    async with coordinator_doors(bus, keys={"north": first.signing_key.public_bytes}):
        with pytest.raises(HanseError, match="runs twice"):
            await original.presence(place=there)
        await original.presence()  # of release 0.1.0, or a pipeline without a policy: it names no place

    told = [AuditEvent.decode(record.data) for record in await bus.snapshot(AUDIT.stream, AUDIT.of(project="triage"))]
    assert {(event.action, event.subject) for event in told} == {("participant.twice", "participant:north")}


@in_virtual_time
async def test_a_site_whose_clock_was_wrong_is_let_in_from_where_it_was_moved_to(clock: Clock, tmp_path: Path) -> None:
    site, bus = identity_in(tmp_path), MemoryBus(MemoryBroker(clock))
    link = SiteLink(bus, site, None)
    ahead = link.presence_message(place="a" * 32).model_copy(update={"sent_at": clock.now() + timedelta(days=365)})
    await bus.publish(PRESENCE.of(project="triage", participant="north"), ahead.encode())
    async with coordinator_doors(bus, keys={"north": site.signing_key.public_bytes}):
        await link.presence(place="b" * 32)
