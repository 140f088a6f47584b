"""A compensator that remembers everything, and what a hub can have it do with seeds of another session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, half_step
from adversary.stage import Array
from hanse_compensator import members, openers
from hanse_compensator.memory import Memory
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Result
from hanse_fabric.subjects import UPDATE, Role
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.masks.seal import open_sealed
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.ring.codec import decode

TARGET = "site-0"


async def read_by(bus: NatsBus, hub: LyingHub, result: Result) -> Array:
    """A site's update, from its seed, which the compensator's key opens, and what these credentials let read."""
    assert result.seed is not None
    assert result.update is not None
    assert UPDATE.stream is not None
    asked = None if result.seed.request is None else bytes.fromhex(result.seed.request)
    note = open_sealed(
        hub.stage.key.private_bytes, result.seed.sealed, project=result.project, run=result.run, session="s1",
        participant=result.participant, request=asked,
    )  # fmt: skip
    tokens = {"project": result.project, "run": result.run, "participant": result.participant}
    record = await bus.last(UPDATE.stream, UPDATE.of(**tokens, digest=result.update.digest))
    assert record is not None
    elements = decode_tensors(record.data)[1]["weight"].copy()
    MaskStream(bound_seed(note.seed, asked), Purpose.UPDATE).subtract_from(elements, 0)
    return decode(elements, hub.plan().default)


async def answers(hub: LyingHub) -> dict[str, Result]:
    return await hub.ask(*(hub.task(name, model=MODEL, session="s1") for name in hub.stage.names))


async def test_with_its_key_and_its_rights_a_compensator_reads_no_update(attacked: Attacked) -> None:
    async with attacked() as hub:
        results = await answers(hub)
        bus = await hub.stage.server.connect(Role.COMPENSATOR)
        with pytest.raises(HanseError) as caught:
            await read_by(bus, hub, results[TARGET])
        await bus.close()
        assert caught.value.code is ErrorCode.FORBIDDEN


@pytest.mark.control("test_with_its_key_and_its_rights_a_compensator_reads_no_update")
async def test_control_with_the_aggregators_rights_too_its_key_reads_every_update(attacked: Attacked) -> None:
    """What the page says of hub and compensator together."""
    async with attacked() as hub:
        for name, result in (await answers(hub)).items():
            read = await read_by(hub.aggregator, hub, result)
            assert np.abs(read - hub.stage.sites[name].update(MODEL)).max() <= half_step(hub.plan())


async def others_by_another_name(hub: LyingHub) -> tuple[Array | None, str]:
    """The target's update: all are summed as session s1, and all others' seeds of s1 again, as session s2."""
    results, plan = await answers(hub), hub.plan()
    first = await hub.sum(results, "s1", plan)
    rest = {name: result for name, result in results.items() if name != TARGET}
    answer = await hub.ask_masks(rest, "s2")
    if answer.sum is None:
        return None, answer.reason
    return first - await hub.sum(rest, "s2", plan), ""


async def test_seeds_of_one_session_are_summed_under_no_other_name(attacked: Attacked) -> None:
    async with attacked() as hub:
        read, reason = await others_by_another_name(hub)
        assert read is None
        assert "signature" in reason


@pytest.mark.control("test_seeds_of_one_session_are_summed_under_no_other_name")
async def test_control_where_neither_signature_nor_seal_has_the_session_the_same_seeds_are_summed_twice(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(self: Memory, claim: object) -> None:
        """The memory of works would refuse the set, whatever it is called."""

    def opens(*given: Any, **named: Any) -> object:
        return open_sealed(*given, **(named | {"session": "s1"}))

    monkeypatch.setattr(members, "_check_signature", lambda *_: None)
    monkeypatch.setattr(openers, "open_sealed", opens)
    monkeypatch.setattr(Memory, "claim_set", forgets)
    async with attacked() as hub:
        read, reason = await others_by_another_name(hub)
        assert read is not None, reason
        assert np.abs(read - hub.stage.sites[TARGET].update(MODEL)).max() <= 8 * half_step(hub.plan())
