"""The compensator's rights on the bus, word by word, and the streams that a release adds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from hanse_fabric.bus.permissions import permissions_for
from hanse_fabric.subjects import (
    COMPENSATORS,
    MASK_ANSWER,
    MASK_RECORDS,
    MASK_REQUEST,
    MASKS,
    PARTICIPANTS,
    SET_ASIDE,
    SHARED_MASKS,
    STATE,
    STREAMS,
    WORK_RECORDS,
    Role,
    Subject,
)
from hanse_operations.bus import provision
from servers import NatsServer

TOKENS = {
    "project": "p", "participant": "south", "run": "r", "step": "s", "job": "j", "digest": "0" * 64, "key": "k",
    "session": "s", "work": "0" * 64, "name": "n", "invitation": "i", "version": "1",
}  # fmt: skip


def _subject(row: Subject) -> str:
    return row.of(**{name: TOKENS[name] for name in row.tokens})


def test_the_compensators_bus_permissions_are_exactly_these() -> None:
    read = "$JS.API.CONSUMER.CREATE.{}.*.{}".format
    at_the_leader = "$JS.API.STREAM.MSG.GET.{}".format
    assert permissions_for(Role.COMPENSATOR) == {
        "publish": sorted(
            [
                "$JS.API.CONSUMER.MSG.NEXT.HANSE_MASK_REQUESTS.compensators",
                "$JS.ACK.HANSE_MASK_REQUESTS.compensators.>",
                MASK_ANSWER.wildcard(), f"$JS.API.DIRECT.GET.HANSE_MASK_ANSWERS.{MASK_ANSWER.wildcard()}",
                MASKS.wildcard(), SET_ASIDE.wildcard(), "_INBOX.coordinator.>",
                read("KV_hanse_participants", "$KV.hanse_participants.>"),
                f"$JS.API.DIRECT.GET.KV_hanse_participants.{PARTICIPANTS.wildcard()}",
                COMPENSATORS.wildcard(), read("KV_hanse_compensators", "$KV.hanse_compensators.>"),
                f"$JS.API.DIRECT.GET.KV_hanse_compensators.{COMPENSATORS.wildcard()}",
                MASK_RECORDS.wildcard(), read("KV_hanse_mask_records", "$KV.hanse_mask_records.>"),
                f"$JS.API.DIRECT.GET.KV_hanse_mask_records.{MASK_RECORDS.wildcard()}",
                WORK_RECORDS.wildcard(), read("KV_hanse_work_records", "$KV.hanse_work_records.>"),
                f"$JS.API.DIRECT.GET.KV_hanse_work_records.{WORK_RECORDS.wildcard()}",
                f"$JS.API.DIRECT.GET.KV_hanse_state.{STATE.wildcard()}",
                at_the_leader("HANSE_MASK_ANSWERS"), at_the_leader("KV_hanse_participants"),
                at_the_leader("KV_hanse_compensators"), at_the_leader("KV_hanse_mask_records"),
                at_the_leader("KV_hanse_work_records"), at_the_leader("KV_hanse_state"),
            ]
        ),
        "subscribe": ["_INBOX.compensator.>", SHARED_MASKS.wildcard()],
    }  # fmt: skip


async def test_an_upgrade_makes_the_streams_that_a_release_adds(
    new_nats: Callable[..., NatsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub of the release before has no compensator; its operator provisions again, and all that was there stays."""
    server = new_nats(bare=True)
    rows = (MASK_REQUEST, MASK_ANSWER, MASKS, MASK_RECORDS, WORK_RECORDS, COMPENSATORS)
    masking = {row.stream.name for row in rows if row.stream}
    monkeypatch.setattr(provision, "STREAMS", [stream for stream in STREAMS if stream.name not in masking])
    await server.provision()
    monkeypatch.undo()
    coordinator, compensator = await server.connect(Role.COORDINATOR), await server.connect(Role.COMPENSATOR)
    await coordinator.publish(_subject(PARTICIPANTS), b"before")
    await server.provision()
    assert PARTICIPANTS.stream is not None
    assert MASK_REQUEST.stream is not None
    kept = await coordinator.last(PARTICIPANTS.stream, _subject(PARTICIPANTS))
    assert kept is not None
    await coordinator.publish(_subject(MASK_REQUEST), b"request")
    async with asyncio.timeout(30), compensator.work(MASK_REQUEST.stream) as jobs:
        assert (await anext(jobs)).record.data == b"request"
    await coordinator.close()
    await compensator.close()
