"""A hub that puts any JSON into a task: the site answers it or refuses it in words, and does the next honest task.

The agents are the real ones, on a table and on genotypes; the config that a task of each kind has is changed at random.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from adversary import workers
from adversary.canaries import CANARY
from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.odd_json import changed, seeds
from adversary.stage import Regression
from hanse_datapod.agent import task_work
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.frames import error_of
from hanse_datapod.worker.port import OnProgress, WorkOutcome, WorkRequest
from hanse_datapod.worker.server.answering import answer
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import HiddenFailure, MaskingMode, Outcome, PrivacyTerms, Result, Task, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_fabric.subjects import RESULT, TASK
from hanse_schemas.resources import resources_of
from plink_files import random_copies, write_plink

WITHIN_S = 60.0
TABLE, GENOTYPES = "site-0", "site-1"
STUDIES = {"workflow": "association_study"}
CODES = {code.code for code in ErrorCode}
TRAINED: dict[str, Any] = {
    "model": {"name": "linear"}, "train": {"steps": 1, "algorithm": "fedavg", "resources": {"device": "any"}},
    "info": ["steps"], "codec": {"up": [], "down": [], "model_size": 100}, "plugins": {}, "code": None,
    "preparation": None, "evaluate": {"every": 1, "counts": None},
}  # fmt: skip
STUDY = {"study": {"test": "chi_square", "chunk": 256}, "step": "open", "settings": {}}
HONEST: dict[TaskKind, dict[str, Any]] = {
    TaskKind.INITIALIZE: TRAINED,
    TaskKind.TRAIN: TRAINED,
    TaskKind.EVALUATE: TRAINED | {
        "evaluate": {
            "every": 1, "counts": {"names": ["accuracy"], "task": "classification", "classes": 2, "bins": 4}
        }
    },
    TaskKind.PREPARE: {"prepare": [{"name": "age", "kind": "number"}], "quantiles": {"prefixes": {}, "depth": 0}},
    TaskKind.STUDY: STUDY,
    TaskKind.CHECK: TRAINED | STUDY | {"kinds": ["prepare", "train", "evaluate", "study"], "rounds": 3},
    TaskKind.ADVERTISE: {},
    TaskKind.SHARE: {},
    TaskKind.UNMASK: {},
}  # fmt: skip
"""Of each kind of task the config of an honest one."""
SECTIONS = sorted({name for config in HONEST.values() for name in config} | {"privacy", "strategy"})
PRIVATE = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="dp_sgd", noise_multiplier=50.0), rounds=1, round=1, active=2
)
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"mode": None}, "masked": {"mode": MaskingMode.COMPENSATOR}, "pairwise": {"mode": MaskingMode.PAIRWISE},
    "private": {"mode": None, "privacy": PRIVATE},
}  # fmt: skip
NARROW: list[dict[str, Any]] = [
    {"evaluate": [1]}, {"train": 5}, {"model": [[]]}, {"step": ["open"]}, {"codec": {"up": 1}}, {"codec": {"down": 1}},
    {"code": {"digest": {}}}, {"plugins": {"algorithm fedavg": []}}, {"info": 7}, {"info": [[1]]}, {"info": [None]},
    {"train": {"algorithm": [1]}}, {"train": {"algorithm": {"name": {}}}}, {"evaluate": {"every": [1]}},
    {"prepare": [{"name": [], "kind": {}}]}, {"quantiles": {"prefixes": {"age": [[1]]}}}, {"kinds": [[1]]},
    {"study": [1]}, {"settings": 5}, {"model": {"name": ["linear"]}}, {"rounds": 10**30},
]  # fmt: skip
"""Some that a reader would think of first; each is tried with every kind of task, and in each way with two kinds."""
HONEST_AFTER = 3
"""After so many hostile tasks an honest one: one that ends the agent is found at once, for it has no answer."""


class Contained(Regression):
    """What goes wrong in its work is what a worker's process would say of it."""

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        try:
            return await super().work(request, on_progress)
        except Exception as error:
            raise said_by_a_process(error) from error

    def require(self, config: Any) -> None:
        resources_of(config)


def said_by_a_process(raised: Exception) -> HanseError:
    frames: list[dict[str, Any]] = []

    def fail(_body: dict[str, Any]) -> dict[str, Any]:
        raise raised

    answer({}, fail, frames.append)
    return error_of(frames[0])


@pytest.fixture
def two_sites(attacked: Attacked, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`attacked` on a site that trains and one with genotypes, that take part in whatever is asked of two."""
    prefix = write_plink(tmp_path_factory.mktemp("genotypes") / "ward", random_copies(6, 24))

    def worker(index: int) -> Any:
        return Contained(0) if index == 0 else workers.on(DataSettings(train=prefix, kind="plink"))

    return lambda: attacked(
        sites=2, worker=worker, workflows=("federated_averaging", "association_study"), limits={"seconds": 20},
        masking={"required": False, "minimum": 2}, studies={"minimum_cohorts": 2},
    )  # fmt: skip


class Sent:
    """Tasks to one site, each of a run of its own, with an honest one after it."""

    def __init__(self, hub: LyingHub, kind: TaskKind) -> None:
        self.hub, self.kind = hub, kind
        self.site = GENOTYPES if kind is TaskKind.STUDY else TABLE
        self.number = 0
        self.tried: list[tuple[str, str]] = []
        self.said: dict[str, list[Result]] = {way: [] for way in WAYS}

    def task(self, kind: TaskKind, config: dict[str, Any], **fields: Any) -> Task:
        self.number += 1
        if kind is TaskKind.STUDY:
            fields = STUDIES | fields
        else:
            fields = {"model": None if kind in (TaskKind.INITIALIZE, TaskKind.CHECK) else MODEL} | fields
        return self.hub.task(
            self.site, "step", kind=kind, run=f"run{self.number:09}", config=config, minimum=2, **fields
        )

    async def any(self, config: str, way: str) -> Result | None:
        """Send a task with this text as its config, and await its answer; None where it is no task that can be read,
        to which there is none."""
        how = dict(WAYS[way])
        if self.kind in (TaskKind.SHARE, TaskKind.UNMASK):
            how["payload"] = b"AAAA"
        task = self.task(self.kind, {"here": 1}, **how)
        where = {"project": task.project, "run": task.run, "step": task.step, "participant": task.participant}
        text = task.encode().replace(b'{"here":1}', config.encode())
        assert config.encode() in text
        try:
            Task.decode(text)
        except HanseError:
            await self.hub.coordinator.publish(TASK.of(**where), text)
            return None
        asking = asyncio.create_task(self.hub._answer(RESULT.of(**where), TASK.of(**where), text))
        agent = self.hub.stage.sites[self.site]._running
        assert agent is not None
        await asyncio.wait({asking, agent}, return_when="FIRST_COMPLETED", timeout=WITHIN_S)
        assert not agent.done(), (config, agent.exception())
        assert asking.done(), config
        self.said[way].append(Result.decode(await asking))
        return self.said[way][-1]

    async def honest(self) -> Result:
        kind = TaskKind.STUDY if self.kind is TaskKind.STUDY else TaskKind.TRAIN
        config = STUDY if kind is TaskKind.STUDY else {"model": {"name": "linear"}, "train": {"steps": 1}}
        return (await self.hub.ask(self.task(kind, config, mode=None)))[self.site]

    async def narrow(self, ways: Iterable[str]) -> None:
        """Each of those that a reader would think of first, in the next of these ways."""
        for config, way in zip(NARROW, itertools.cycle(ways), strict=False):
            await self.answered(json.dumps(HONEST[self.kind] | config), way)

    async def answered(self, config: str, way: str) -> None:
        """Send the config, and an honest one after every third."""
        said = await self.any(config, way)
        if said is not None and said.outcome is not Outcome.DONE:
            assert said.reason, (config, way)
            assert said.code in CODES, (config, way)
        self.tried.append((config, way))
        if len(self.tried) % HONEST_AFTER == 0:
            assert (await self.honest()).outcome is Outcome.DONE, self.tried[-HONEST_AFTER:]


async def fuzz(sent: Sent, tasks: int) -> None:
    for seed in seeds(tasks):
        draw = random.Random(seed)
        way = draw.choice(sorted(WAYS))
        await sent.answered(changed(draw, HONEST[sent.kind], SECTIONS), way)


def raised(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of the log, what was raised that nobody meant."""
    return [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.mark.no_attack("says what the attack is played on")
def test_every_kind_of_task_is_tried() -> None:
    assert HONEST.keys() == set(TaskKind)


@pytest.mark.parametrize("kind", TaskKind)
async def test_whatever_stands_in_a_task_it_is_answered_in_words_and_the_next_honest_one_is_done(
    two_sites: Any, kind: TaskKind, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_sites() as hub:
        sent = Sent(hub, kind)
        first = list(TaskKind).index(kind) % len(WAYS)
        await sent.narrow([*WAYS][first:] + [*WAYS][:first])
        await fuzz(sent, 20)
        assert (await sent.honest()).outcome is Outcome.DONE
        for way in WAYS:
            assert any(said.outcome is not Outcome.DONE for said in sent.said[way]), way
    assert not raised(caplog)


@pytest.mark.parametrize("kind", [TaskKind.TRAIN, TaskKind.EVALUATE, TaskKind.CHECK])
@pytest.mark.control("test_whatever_stands_in_a_task_it_is_answered_in_words_and_the_next_honest_one_is_done")
async def test_control_a_task_that_is_read_as_it_comes_ends_the_whole_agent(
    two_sites: Any, kind: TaskKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_work, "check_config", lambda _task: None)
    monkeypatch.setattr(task_work, "unforeseen", as_it_is)
    async with two_sites() as hub:
        sent = Sent(hub, kind)
        with pytest.raises(AssertionError, match=r"TypeError|AttributeError"):
            await sent.narrow(["plain"])


FAILURES: dict[str, Exception] = {
    "nobody foresaw": RuntimeError(f"'{CANARY}' is not a finite number"),
    "of the system": FileNotFoundError(2, "No such file", f"/srv/patients/{CANARY}.csv"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("way", ["plain", "masked"])
async def test_of_an_error_that_nobody_foresaw_the_hub_hears_fixed_words_and_the_next_task_is_done(
    two_sites: Any, way: str, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites() as hub:
        sent = Sent(hub, TaskKind.TRAIN)
        with monkeypatch.context() as patch:
            patch.setattr(Contained, "work", fails_with(FAILURES[failure]))
            said = await sent.any(json.dumps(TRAINED), way)
        assert said is not None
        assert said.outcome is Outcome.FAILED
        if way == "masked":
            assert (said.code, said.reason) == (HiddenFailure.FAILED.value, HiddenFailure.FAILED.text)
        else:
            assert said.code == ErrorCode.INTERNAL.code
        assert not any(CANARY.encode() in data for _, data in hub.heard)
        assert (await sent.honest()).outcome is Outcome.DONE


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.control("test_of_an_error_that_nobody_foresaw_the_hub_hears_fixed_words_and_the_next_task_is_done")
async def test_control_where_such_an_error_is_told_in_its_own_words_the_hub_hears_what_stands_in_it(
    two_sites: Any, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for told in ("unforeseen", "of_the_system"):
        monkeypatch.setattr(task_work, told, lambda _task, error: HanseError(ErrorCode.INTERNAL, str(error)))
    monkeypatch.setattr(Contained, "work", fails_with(FAILURES[failure]))
    async with two_sites() as hub:
        await Sent(hub, TaskKind.TRAIN).any(json.dumps(TRAINED), "masked")
        assert any(CANARY.encode() in data for _, data in hub.heard)


def fails_with(error: Exception) -> Any:
    async def work(*_: Any) -> WorkOutcome:
        raise error

    return work


def as_it_is(_task: Task, error: Exception) -> Any:
    raise error
