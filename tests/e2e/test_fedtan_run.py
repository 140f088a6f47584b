"""FedTAN by real processes: two datapods and a site that the test plays, so that it can stop in the middle of a sum.

The model is the pooled batch's; a datapod that is killed between two sums ends with the same bits; without one that is
killed for good, the step is done again by those who are left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.deployed import DeployedHub, completed, site
from e2e.sites_online import wait_online
from hanse.hub import Hub, Project, Run
from hanse.site import PlainTask
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.exchange import open_exchange
from hanse_fabric.messages import Outcome
from hanse_fabric.tensors.file import read_tensors
from hanse_learning.config import check_model, check_train, patience_of
from hanse_learning.site.algorithms import train_round
from hanse_learning.site.entries import arrays_of, entries_of, freeze, load
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.session import Session
from hanse_learning.site.sums import Floats
from hanse_learning.site.training import train

SIZES = {"alpha": 5, "beta": 11, "zulu": 8}
MODEL = {"name": "mlp", "hidden": [8, 6], "batch_norm": True, "dtype": "float64"}
PROBLEM = Problem((4,), 3, "classification")
LAYERS = 2
Hook = Callable[[int, str], None]


def job(patience: float = 60.0, **changes: Any) -> dict[str, Any]:
    algorithm = {"name": "fedtan", "patience": patience}
    optimizer = {"name": "sgd", "lr": 0.3}
    return {
        "rounds": 2,
        "participants": {"minimum": 2, "quorum": 0.5, "deadline": 120},
        "model": MODEL,
        "train": {"algorithm": algorithm, "steps": 1, "batch_size": "all", "optimizer": optimizer},
        "evaluate": {"every": 0},
        **changes,
    }


def shares() -> dict[str, Examples]:
    """A class at each site, far from the others'."""
    rng = np.random.default_rng(5)
    return {
        name: Examples((rng.standard_normal((size, 4)) + 3 * i).astype(np.float32), np.full(size, i, np.int64))
        for i, (name, size) in enumerate(SIZES.items())
    }


class SumsOnBus:
    """The played site's, on the bus; `before` is called before each contribution."""

    def __init__(self, task: PlainTask, stack: AsyncExitStack, before: Hook, patience: float) -> None:
        asked, link, self._do = task._found.task, task._site._link, task._site._worker.do
        exchange = open_exchange(link.doors, run=asked.run, step=asked.step)
        self._exchange = self._do(stack.enter_async_context(exchange))
        self._before, self._patience, self._round = before, patience, asked.round
        self.keys: list[str] = []

    def sum(self, key: str, values: Floats) -> Floats:
        self._before(self._round, key)
        self.keys.append(key)
        return self._do(self._exchange.sum(key, values, timeout=self._patience))

    def end(self) -> None:
        self._do(self._exchange.end())


class Played:
    """Zulu."""

    def __init__(self, data: Examples) -> None:
        self.data = data
        self.before: Hook = lambda _round, _key: None
        self.keys: list[list[str]] = []

    def answer(self, task: PlainTask) -> None:
        asked, stack = check_train(task.config["train"]), AsyncExitStack()
        sums = SumsOnBus(task, stack, self.before, patience_of(asked))
        model = check_model(task.config["model"])
        module = build(model, PROBLEM, seed=0)
        entries = entries_of(module, model.buffers, model.state, task.round)
        load(module, task.model(), entries.travelling)
        freeze(module, entries)
        try:
            train_round(
                Session(module=module, data=self.data, config=asked, problem=PROBLEM, seed=task.seed, sums=sums)
            )
        except HanseError as error:
            code = ErrorCode.QUORUM if error.code is ErrorCode.TIMEOUT else error.code
            task._answer(outcome=Outcome.FAILED, reason=str(error), code=code.code)
            return
        self.keys.append(sums.keys)
        task.push(arrays_of(module), examples=len(self.data))
        task._site._worker.do(stack.aclose())


@pytest.fixture(scope="module")
def zulu() -> Played:
    return Played(shares()["zulu"])


@pytest.fixture(scope="module")
def project(hub: DeployedHub, client: Hub, zulu: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("sites")
    schema = {"kind": "array", "shape": [4], "task": "classification", "classes": 3}
    made = client.projects.create("together", schema=schema)
    for name in ("alpha", "beta"):
        data = shares()[name]
        path = folder / f"{name}.npz"
        np.savez(path, x=data.x, y=data.y)
        hub.start_datapod(made, name, home=folder / name, data=path, test=path)
    with site(made, "zulu", folder, zulu.answer):
        wait_online(made, 3)
        yield made


def rounds_of(run: Run) -> dict[int, dict[str, Any]]:
    """What was told of each finished round."""
    return {event.round: event.data for event in run.watch() if event.kind == "round-finished"}


@pytest.fixture(scope="module")
def undisturbed(project: Project) -> tuple[Run, dict[int, dict[str, Any]]]:
    run = completed(project.run(job(checkpoint_every=1)))
    return run, rounds_of(run)


def test_the_sites_model_is_that_of_their_pooled_batch(
    undisturbed: tuple[Run, dict[int, dict[str, Any]]], project: Project, zulu: Played, tmp_path: Path
) -> None:
    run, rounds = undisturbed
    assert rounds[2]["participants"] == ["alpha", "beta", "zulu"]
    metrics = rounds[2]["metrics"]
    assert metrics["train_sums"] + 1 == 3 * LAYERS + 1 == 7
    assert metrics["train_summed_values"] == 2 * 2 * (8 + 6) + 1
    assert zulu.keys[0] == ["l0-mean", "l0-var", "l1-mean", "l1-var", "l1-grad", "l0-grad"]
    module = build(check_model(MODEL), PROBLEM, seed=0)
    layout = entries_of(module).travelling
    first, second = (
        {name: array.copy() for name, array in read_tensors(version.download(tmp_path / f"{i}"))[1].items()}
        for i, version in enumerate(model for model in project.models() if model.view.lineage.run == run.id)
    )
    load(module, first, layout)
    data = shares().values()
    whole = Examples(np.concatenate([one.x for one in data]), np.concatenate([one.y for one in data]))
    plain = check_train(job()["train"] | {"algorithm": "fedavg"})
    train(module, whole, plain, PROBLEM, seed=0, on_progress=lambda *_: None)
    for name, array in arrays_of(module).items():
        np.testing.assert_allclose(second[name], array, rtol=1e-10, atol=1e-12, err_msg=name)


def test_statistics_freeze_from_their_round_on_and_the_forward_part_goes_by_itself(
    undisturbed: tuple[Run, dict[int, dict[str, Any]]], project: Project, tmp_path: Path
) -> None:
    assert undisturbed[0].state == "completed"
    asked = job(rounds=3, checkpoint_every=1)
    asked["train"]["algorithm"]["backward"] = False
    asked["model"] = MODEL | {"state": [{"layers": "statistics", "keep": "frozen", "from_round": 3}]}
    run = completed(project.run(asked))
    sums = [told["metrics"].get("train_sums") for _, told in sorted(rounds_of(run).items())]
    assert sums == [2 * LAYERS, 2 * LAYERS, 0]
    first, second, third = (
        {name: array.copy() for name, array in read_tensors(version.download(tmp_path / f"{i}"))[1].items()}
        for i, version in enumerate(model for model in project.models() if model.view.lineage.run == run.id)
    )
    for name in ("norm0.running_mean", "norm1.running_var"):
        assert not np.allclose(first[name], second[name], rtol=1e-6)
        np.testing.assert_allclose(second[name], third[name], rtol=1e-14)
    assert not np.allclose(second["hidden0.weight"], third["hidden0.weight"], rtol=1e-6)


def pid_of(hub: DeployedHub, name: str) -> int | None:
    return hub.hub.supervisor.pids().get(f"datapod-{name}")


def test_a_datapod_that_is_killed_between_two_sums_ends_with_the_same_bits(
    undisturbed: tuple[Run, dict[int, dict[str, Any]]], hub: DeployedHub, project: Project, zulu: Played
) -> None:
    killed: list[int] = []

    def kill(number: int, key: str) -> None:
        # The first layer's means are summed, alpha waits for the sum of its variances.
        if (number, key) != (2, "l0-var") or killed:
            return
        pid = pid_of(hub, "alpha")
        assert pid is not None
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    zulu.before = kill
    try:
        run = completed(project.run(job()))
    finally:
        zulu.before = lambda _round, _key: None
    assert killed
    assert pid_of(hub, "alpha") not in (None, *killed)
    rounds, as_it_was = rounds_of(run), undisturbed[1]
    assert rounds[2]["participants"] == ["alpha", "beta", "zulu"]
    assert {number: told["digest"] for number, told in rounds.items()} == {
        number: told["digest"] for number, told in as_it_was.items()
    }


def test_without_a_site_that_is_gone_for_good_the_step_is_done_again(
    undisturbed: tuple[Run, dict[int, dict[str, Any]]], hub: DeployedHub, project: Project, zulu: Played
) -> None:
    assert undisturbed[0].state == "completed"  # all workers are warm
    killed: list[str] = []

    def kill(_round: int, key: str) -> None:
        if key == "l1-mean" and not killed:
            killed.append(key)
            hub.kill_for_good("datapod-beta")

    zulu.before = kill
    run = completed(project.run(job(patience=3.0, rounds=1)))
    (told,) = [event.data for event in run.watch() if event.kind == "exchange-broken"][:1]
    assert told == {"step": "r1-train", "left": ["alpha", "zulu"]}
    assert rounds_of(run)[1]["participants"] == ["alpha", "zulu"]
