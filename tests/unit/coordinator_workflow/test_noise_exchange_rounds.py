"""Rounds in which sites draw noise for each other first (`privacy.noise: oblivious`)."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from masked_hub import MaskedHub, MaskedSite, masked_job
from workflow_hub import PROJECT, MortalBus, at_work, stopped

from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Result, Task, TaskKind
from hanse_privacy.noise.exchange import NoiseSite

NAMES = ("east", "north", "south", "west")
PRIVACY = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "oblivious", "noise_multiplier": 1.0}


class ExchangingSite(MaskedSite):
    """Takes part in the exchange as a datapod does; what it draws is noted, not added."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.noise = NoiseSite(self.key, project=PROJECT, participant=self.name)
        self.drawn: dict[str, int] = {}

    async def work(self, task: Task, changes: dict[str, Any]) -> Result:
        assert task.masking is not None or task.kind is TaskKind.INITIALIZE
        if task.kind in {TaskKind.ADVERTISE, TaskKind.SHARE}:
            payload = self.answer(task)
            result = self.signed(
                Result(
                    task=task.id, project=PROJECT, run=task.run, step=task.step, participant=self.name, outcome="done"
                )
            )
            return self.signed_copy(result.model_copy(update={"payload": payload} | changes))
        if task.kind is TaskKind.TRAIN:
            assert task.masking is not None
            assert task.payload is not None
            session = task.masking.session
            self.drawn[session] = self.noise.draw(task.run, task.payload, session=session).size
        return await super().work(task, changes)

    def answer(self, task: Task) -> bytes:
        assert task.masking is not None
        session = task.masking.session
        if task.kind is TaskKind.ADVERTISE:
            return self.noise.advertise(task.run, session)
        assert task.payload is not None
        return self.noise.share(task.run, task.payload, session=session, steps=1000, count=7)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MaskedHub:
    monkeypatch.setattr(MaskedHub, "site", ExchangingSite)
    return MaskedHub(tmp_path)


def job(quorum: float = 0.7) -> Any:
    participants = {"minimum": 3, "quorum": quorum, "grace": 0.1, "deadline": 30}
    return masked_job(rounds=1, weighting="uniform", privacy=PRIVACY, participants=participants)


def drawn(hub: MaskedHub) -> dict[str, dict[str, int]]:
    return {name: site.drawn for name, site in hub.sites.items() if isinstance(site, ExchangingSite)}


async def test_each_site_gets_the_others_noise_with_its_training_task(hub: MaskedHub) -> None:
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        await hub.submit(job(quorum=1.0))
        record = await hub.ended()
    assert (record.state, record.reason) == ("completed", "")
    assert drawn(hub) == {name: {"r1-train": 7} for name in NAMES}
    assert hub.sums["r1-train"] == NAMES


@pytest.mark.parametrize("step", ["r1-train-noise-keys", "r1-train-noise"])
async def test_who_takes_no_part_in_the_exchange_is_not_asked_to_train(hub: MaskedHub, step: str) -> None:
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        hub.sites["west"].behave = lambda task: None if task.step == step else {}
        await hub.submit(job())
        record = await hub.ended()
    assert (record.state, record.reason) == ("completed", "")
    assert drawn(hub)["west"] == {}
    assert hub.sums["r1-train"] == NAMES[:3]


async def test_a_key_that_is_not_the_sites_own_is_told_by_name(hub: MaskedHub) -> None:
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        site = hub.sites["west"]
        assert isinstance(site, ExchangingSite)
        site.noise = NoiseSite(SigningKey.create(), project=PROJECT, participant="west")
        await hub.submit(job())
        record = await hub.ended()
        refused = [event.data for event in await hub.events("refused")]
    assert record.state == "completed"
    assert [(event["participant"], event["code"]) for event in refused] == [("west", "tampered")]
    assert hub.sums["r1-train"] == NAMES[:3]


async def test_noise_that_is_none_is_told_by_name(hub: MaskedHub) -> None:
    false = {"payload": base64.b64encode(b"{}")}
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        hub.sites["west"].behave = lambda task: false if task.kind is TaskKind.SHARE else {}
        await hub.submit(job())
        record = await hub.ended()
        refused = [event.data for event in await hub.events("refused")]
    assert record.state == "completed"
    assert "noise for every other site" in refused[0]["reason"]
    assert hub.sums["r1-train"] == NAMES[:3]


async def test_too_few_who_exchange_end_the_run(hub: MaskedHub) -> None:
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        for name in ("south", "west"):
            site = hub.sites[name]
            assert isinstance(site, ExchangingSite)
            site.noise = NoiseSite(SigningKey.create(), project=PROJECT, participant=name)
        await hub.submit(job())
        record = await hub.ended()
    assert record.state == "failed"
    assert "0 sites can exchange noise, 3 are needed" in record.reason


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("at", [10, 16, 22, 28])
async def test_a_coordinator_that_is_killed_in_the_exchange_goes_on(hub: MaskedHub, at: int, stored: bool) -> None:
    async with hub.masked(*NAMES):
        mortal = MortalBus(hub.broker, at=at, stored=stored)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(job(quorum=1.0))
        finished = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([finished, died], return_when=asyncio.FIRST_COMPLETED)
        assert died.done()
        async with at_work(hub.supervisor()):
            record = await finished
        mortal.buried.set()
        await stopped(first, died)
    assert (record.state, record.reason) == ("completed", "")
    assert drawn(hub) == {name: {"r1-train": 7} for name in NAMES}
