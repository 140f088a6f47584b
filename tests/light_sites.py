"""Sites without trainers: real identities, links and masked answers, with updates that tell whose they are.

Element k of a site's update is 1 where the site's index is k and 0 elsewhere, but for the tail, which differs by site
and round. So the change of a model tells who is in its mean, with which weight, and whether the rest is right.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.masking.answer import masked_answer
from hanse_datapod.masking.pairwise import is_pairwise, protocol_answer
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.noise import SiteNoise, is_exchange
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Outcome, Result, Task, TaskKind
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_privacy.masks.seal import statement
from hanse_site import SiteLink, enrol
from hanse_site.answering import result_for

TAIL = 200
LATE_S = 2.0
Array = NDArray[np.float64]


class Fate(StrEnum):
    """What becomes of an answer. All but ANSWERS are ways to drop out, at one step of it or another."""

    ANSWERS = "answers"
    SILENT = "is silent"
    FAILS = "says that it failed"
    LATE = "answers late"
    NO_UPDATE = "hands in a result without its update"
    TAMPERED = "hands in another update than it named"
    BAD_SEED = "seals no seed"


def update_of(index: int, sites: int, round_number: int) -> Array:
    """A site's plain update in a round."""
    identity = np.zeros(sites)
    identity[index] = 1.0
    tail = np.random.default_rng([index, round_number]).uniform(-1, 1, TAIL)
    return np.concatenate([identity, tail]).astype(np.float32).astype(np.float64)


def weight_of(index: int) -> int:
    """A site's number of examples."""
    return index + 1


@dataclass
class LightSite:
    """One site, at work until it is cancelled.

    Attributes:
        fate: what becomes of its answer to a task.
        models: the model of each round, as it was sent with the tasks; shared by all sites, which must see the same.
        begun: called with each round whose task is seen.
        seconds: that its work took, as it will say where it may.
        pinned: what its policy has of masking beside the compensator's key.
    """

    index: int
    sites: int
    home: Path
    compensator_key: str
    fate: Callable[[LightSite, Task], Fate]
    models: dict[int, Array]
    begun: Callable[[int], None]
    seconds: float = 0.0
    pinned: dict[str, Any] = field(default_factory=dict)
    fates: list[Fate] = field(default_factory=list)
    _answers: dict[str, FinishedTask] = field(default_factory=dict)
    _noise: SiteNoise | None = None

    @property
    def name(self) -> str:
        return f"site-{self.index:03}"

    async def run(self, url: str, token: str) -> None:
        """Join, and answer tasks."""
        link = await SiteLink.connect(await enrol(url, token, self.home))
        try:
            async with asyncio.TaskGroup() as group, link.tasks() as tasks:
                group.create_task(_show_life(link))
                async for found in tasks:
                    group.create_task(self._work(link, found.task))
        finally:
            await link.close()

    async def _work(self, link: SiteLink, task: Task) -> None:
        if task.kind is TaskKind.CHECK:  # as a site of release 0.1.0, which does not know it
            await link.answer(result_for(task, Outcome.REFUSED, reason="kind: unknown", code="invalid-input"))
            return
        if task.kind is TaskKind.TRAIN:
            await self._note_model(link, task)
            self.begun(task.round)
        fate = self.fate(self, task)
        self.fates.append(fate)
        match fate:
            case Fate.SILENT:
                return
            case Fate.FAILS:
                await link.answer(result_for(task, Outcome.FAILED, reason="by chance", code="training-failed"))
                return
            case Fate.LATE:
                await asyncio.sleep(LATE_S)
            case _:
                pass
        # The same task again gets the same bytes again.
        if task.id not in self._answers:
            model = await link.files.fetch(task) if is_exchange(task) and task.model is not None else None
            try:
                self._answers[task.id] = await asyncio.to_thread(self._answer, link, task, model)
            except HanseError as error:
                await link.answer(result_for(task, Outcome.FAILED, reason=error.message, code=error.code.code))
                return
        await self._hand_in(link, task, fate, self._answers[task.id])

    async def _note_model(self, link: SiteLink, task: Task) -> None:
        path = await link.files.fetch(task)
        assert path is not None
        model = read_tensors(path)[1]["weight"].astype(np.float64)
        known = self.models.setdefault(task.round, model)
        assert np.array_equal(known, model), f"round {task.round} has two models"

    def _answer(self, link: SiteLink, task: Task, model: Path | None) -> FinishedTask:
        assert task.masking is not None
        policy = Policy(masking=MaskingPolicy.model_validate({"compensator": self.compensator_key, **self.pinned}))
        self._noise = self._noise or SiteNoise(link, policy)
        if is_exchange(task):
            return self._noise.answer(task, model)
        remembered = Remembered(self.home, policy, link.bus.clock)
        if is_pairwise(task):
            return protocol_answer(link, policy, task, self.home, remembered)
        output = self.home / f"{task.id}.update"
        plain = None
        if task.kind is TaskKind.TRAIN:
            plain = self.home / f"{task.id}.plain"
            values = update_of(self.index, self.sites, task.round).astype(np.float32)
            write_tensors(plain, layout_of_weight(values), {"weight": values})
        outcome = WorkOutcome(plain, weight_of(self.index), {"accuracy": 0.5}, self.seconds)
        remembered.check(task)
        made = masked_answer(
            link, policy, task, task.masking, outcome, output, home=self.home, remembered=remembered, noise=self._noise
        )  # fmt: skip
        remembered.claim(task, made.finished, outcome.data, made.tag, made.among)
        remembered.fix_answer(task, made.finished.result)
        return made.finished

    async def _hand_in(self, link: SiteLink, task: Task, fate: Fate, answer: FinishedTask) -> None:
        result = answer.result
        if fate is not Fate.NO_UPDATE:
            for ref, data in ((result.update, answer.update), (result.tally, answer.tally)):
                if ref is not None and ref.key is None:
                    assert data is not None
                    sent = secrets.token_bytes(len(data)) if fate is Fate.TAMPERED else data
                    await link.send_update_bytes(task, ref, sent)
                elif ref is not None:
                    await link.send_update(task, self.home / f"{task.id}.update", ref=ref)
        await link.publish(_without_seed(link, task, result) if fate is Fate.BAD_SEED else result)


async def _show_life(link: SiteLink) -> None:
    while True:
        await link.presence()
        await asyncio.sleep(link.pace)


def layout_of_weight(values: NDArray[Any]) -> Any:
    """The layout of the only entry."""
    from hanse_fabric.tensors.file import layout_like

    return layout_like({"weight": values})


def _without_seed(link: SiteLink, task: Task, result: Result) -> Result:
    """The result with random bytes in the sealed seed's place, signed in order."""
    assert result.seed is not None
    assert task.masking is not None
    sealed, seals = secrets.token_bytes(len(result.seed.sealed)), result.seed.seals
    if seals is not None:
        seals = tuple(secrets.token_bytes(len(each)) for each in seals)
    bare = result.seed.model_copy(update={"sealed": sealed, "seals": seals, "signature": b""})
    key = link.identity.signing_key
    signature = key.sign(statement(task.project, task.run, task.masking.session, bare))
    forged = bare.model_copy(update={"signature": signature})
    return link.sign(result.model_copy(update={"seed": forged, "signature": b""}))
