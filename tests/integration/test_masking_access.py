"""Who sees what of a masked sum: every right that a role does not have is denied by the real bus and the real store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from hanse_compensator.upload import Upload
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.permissions import permissions_for
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.subjects import (
    COMPENSATORS,
    MASK_ANSWER,
    MASK_RECORDS,
    MASK_REQUEST,
    MASKS,
    PARTICIPANTS,
    RESULT,
    STATE,
    STREAMS,
    SUBJECTS,
    UPDATE,
    WORK_RECORDS,
    Role,
    Subject,
    Verb,
)
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_operations.bus import provision
from servers import NatsServer

TOKENS = {
    "project": "p", "participant": "south", "run": "r", "step": "s", "job": "j", "digest": "0" * 64, "key": "k",
    "session": "s", "work": "0" * 64, "name": "n", "invitation": "i", "version": "1",
}  # fmt: skip


def _subject(row: Subject) -> str:
    return row.of(**{name: TOKENS[name] for name in row.tokens})


async def _follow(bus: NatsBus, row: Subject) -> None:
    assert row.stream is not None
    async with bus.follow(row.stream, row.wildcard()) as records:
        await anext(records)


async def _work(bus: NatsBus, row: Subject) -> None:
    assert row.stream is not None
    async with bus.work(row.stream) as jobs:
        await anext(jobs)


ATTEMPTS: dict[Verb, Callable[[NatsBus, Subject], Awaitable[object]]] = {
    Verb.PUBLISH: lambda bus, row: bus.publish(_subject(row), b"x", timeout=5),
    Verb.FOLLOW: _follow,
    Verb.LAST: lambda bus, row: bus.last(row.stream, _subject(row), timeout=5) if row.stream else _none(),
    Verb.PURGE: lambda bus, row: bus.purge(row.stream, _subject(row), timeout=5) if row.stream else _none(),
    Verb.WORK: _work,
}


async def _none() -> None:
    """No such operation."""


def _denied(role: Role) -> Iterator[tuple[Subject, Verb]]:
    """All that the table does not grant. Another's subjects are denied to a participant, whatever the verb."""
    for row in SUBJECTS:
        if row.stream is None:
            continue
        for verb in ATTEMPTS:
            if verb is Verb.WORK and not row.stream.workers:
                continue
            if verb not in row.rights.get(role, ()) or (role is Role.PARTICIPANT and "participant" in row.tokens):
                yield row, verb


async def _attempt(bus: NatsBus, row: Subject, verb: Verb) -> str:
    """Empty when it is denied at once; else what happened."""
    try:
        async with asyncio.timeout(30):
            await ATTEMPTS[verb](bus, row)
    except HanseError as error:
        return "" if error.code is ErrorCode.FORBIDDEN else f"{verb} {row.pattern}: {error}"
    except TimeoutError:
        return f"{verb} {row.pattern}: not refused"
    return f"{verb} {row.pattern}: done"


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.PROVISIONER], ids=str)
async def test_the_bus_denies_a_role_all_that_the_table_does_not_grant(nats_server: NatsServer, role: Role) -> None:
    if role is Role.PARTICIPANT:
        bus, _ = await nats_server.enrol("p", "north")
    else:
        bus = await nats_server.connect(role)
    try:
        found = [await _attempt(bus, row, verb) for row, verb in _denied(role)]
    finally:
        await bus.close()
    assert [outcome for outcome in found if outcome] == []


def test_the_compensators_bus_permissions_are_exactly_these() -> None:
    read = "$JS.API.CONSUMER.CREATE.{}.*.{}".format
    at_the_leader = "$JS.API.STREAM.MSG.GET.{}".format
    assert permissions_for(Role.COMPENSATOR) == {
        "publish": sorted(
            [
                "$JS.API.CONSUMER.MSG.NEXT.HANSE_MASK_REQUESTS.compensators",
                "$JS.ACK.HANSE_MASK_REQUESTS.compensators.>",
                MASK_ANSWER.wildcard(), f"$JS.API.DIRECT.GET.HANSE_MASK_ANSWERS.{MASK_ANSWER.wildcard()}",
                MASKS.wildcard(),
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
        "subscribe": ["_INBOX.compensator.>"],
    }  # fmt: skip


def test_each_role_reaches_only_its_own_of_seeds_sums_and_updates() -> None:
    """The table of who sees what, as rights: seeds in results and requests, sums of masks, masked updates."""
    reading = {Verb.FOLLOW, Verb.LAST, Verb.WORK}

    def readers(row: Subject) -> set[Role]:
        return {role for role, verbs in row.rights.items() if verbs & reading}

    assert readers(UPDATE) == {Role.AGGREGATOR}
    assert readers(MASKS) == {Role.AGGREGATOR}
    assert readers(MASK_REQUEST) == {Role.COMPENSATOR}
    assert readers(MASK_RECORDS) == readers(WORK_RECORDS) == {Role.COMPENSATOR}
    # Sealed seeds pass the coordinator, which cannot open them.
    assert readers(RESULT) == {Role.COORDINATOR}


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


@contextmanager
def _store(weed, role: str) -> Iterator[S3Store]:
    store = weed.store(role, patience=5.0)
    try:
        yield store
    finally:
        store.close()


def _forbidden(call: Callable[[], object]) -> None:
    with pytest.raises(HanseError) as caught:
        call()
    assert caught.value.code is ErrorCode.FORBIDDEN, caught.value


@pytest.fixture(scope="module")
def objects(weed) -> dict[str, str]:
    """One object of each kind, put there by an administrator."""
    found = {kind: f"{kind}/access/r/x" for kind in ("models", "updates", "masks")}
    with _store(weed, "admin") as admin:
        for key in found.values():
            admin.put(key, b"secret")
    return found


READERS = {
    "models": {"coordinator", "aggregator", "model-registry"},
    "updates": {"aggregator"},
    "masks": {"aggregator"},
}
WRITERS = {
    "models": {"coordinator", "aggregator", "model-registry"},
    "updates": {"coordinator"},
    "masks": {"compensator", "coordinator"},
}
"""The coordinator writes to sign the sites' links, and to remove what a run leaves; for that it sees names, too."""


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("role", ["coordinator", "aggregator", "compensator", "model-registry"])
def test_the_store_lets_each_service_read_and_write_its_own_only(weed, objects, role: str, kind: str) -> None:
    key = objects[kind]
    with _store(weed, role) as store:
        if role in READERS[kind]:
            assert store.get(key, limit=10) == b"secret"
        else:
            for read in (
                lambda: store.get(key, limit=10),
                lambda: store.size(key),
                lambda: store.open_range(key, 0, 3).read_into(memoryview(bytearray(3))),
            ):
                _forbidden(read)
        if kind != "models" and role not in READERS[kind] | {"coordinator"}:
            _forbidden(lambda: list(store.keys(f"{kind}/")))
        new = f"{kind}/access/{role}"
        if role in WRITERS[kind]:
            store.put(new, b"mine")
        else:
            _forbidden(lambda: store.put(new, b"mine"))
            _forbidden(lambda: store.open_upload(new))
            _forbidden(lambda: store.delete(key))


def test_a_compensator_uploads_in_parts_with_the_right_to_write_alone(weed) -> None:
    data = bytes(range(256)) * (LEAF_BYTES // 256) + b"and a bit"
    with _store(weed, "compensator") as store:
        assert store.ready()
        with Upload(store, "masks/access/parts", threading.Event()) as upload:
            upload.write(data)
            ref = upload.finish()
        stop = threading.Event()
        stop.set()
        with Upload(store, "masks/access/broken", stop) as upload, pytest.raises(HanseError) as caught:
            upload.write(data)
    assert caught.value.code is ErrorCode.CANCELLED
    with _store(weed, "aggregator") as store:
        assert store.get("masks/access/parts", limit=ref.size) == data
    with _store(weed, "admin") as store:
        assert not store.exists("masks/access/broken")
        assert store.abort_uploads("masks/access/") == 0
