"""A service that was taken over, the aggregator first of all: what its own credentials let it read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, half_step
from adversary.stage import FEATURES
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import MaskingMode
from hanse_fabric.subjects import (
    MASK_RECORDS,
    MASK_REQUEST,
    MASKS,
    RESULT,
    SUBJECTS,
    UPDATE,
    WORK_RECORDS,
    Role,
    Subject,
    Verb,
)
from hanse_privacy.ring.codec import decode
from overhearing import with_all_rights
from servers import NatsServer

MODEL = np.linspace(0.5, -0.5, FEATURES)
TOKENS = {
    "project": "p", "participant": "south", "run": "r", "step": "s", "job": "j", "digest": "0" * 64, "key": "k",
    "session": "s", "work": "0" * 64, "name": "n", "invitation": "i", "version": "1", "area": "a", "who": "w",
    "instance": "i", "round": "1", "compensator": "0" * 64,
    "person": "p", "login": "l", "output": "o",
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


@pytest.mark.control("test_the_bus_denies_a_role_all_that_the_table_does_not_grant")
async def test_control_with_all_rights_the_same_subjects_are_read(nats_server: NatsServer) -> None:
    tap = await with_all_rights(nats_server.url, nats_server.authority.folder)
    streams = {row.stream.name for row, verb in _denied(Role.COMPENSATOR) if verb is Verb.LAST and row.stream}
    try:
        assert len(streams) > 10
        assert {(await tap.jetstream().stream_info(name)).config.name for name in streams} == streams
    finally:
        await tap.close()


@pytest.mark.no_attack("a table is read, and nothing is tried")
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


async def masked_twice(hub: LyingHub, mode: MaskingMode) -> tuple[np.ndarray, np.ndarray]:
    """What the aggregator reads of one site's update in two sessions of two rounds, of the same model."""
    plan, read = hub.plan(), []
    for number in (1, 2):
        task = hub.task("site-0", f"r{number}-train", model=MODEL, mode=mode, plan=plan, round=number)
        read.append(await hub.update((await hub.ask(task))["site-0"]))
    return read[0], read[1]


async def test_a_masked_update_tells_its_reader_nothing(attacked: Attacked) -> None:
    async with attacked() as hub:
        one, other = await masked_twice(hub, MaskingMode.COMPENSATOR)
        plan = hub.plan()
        plain = hub.stage.sites["site-0"].update(MODEL)
        for seen in (decode(one, plan.default), decode(other, plan.default), decode(one - other, plan.default)):
            # Uniform in a ring whose span is thousands of times what an update can be: none comes near by chance.
            assert np.abs(seen).max() > 10
            assert np.abs(seen - plain).max() > 10


@pytest.mark.control("test_a_masked_update_tells_its_reader_nothing")
async def test_control_without_masks_the_aggregator_reads_the_update(attacked: Attacked) -> None:
    async with attacked(masking={"required": False}) as hub:
        one, other = await masked_twice(hub, MaskingMode.RING)
        plain = hub.stage.sites["site-0"].update(MODEL)
        assert np.array_equal(one, other)
        assert np.abs(decode(one, hub.plan().default) - plain).max() <= half_step(hub.plan())
