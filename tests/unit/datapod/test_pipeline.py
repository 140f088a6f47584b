"""A datapod whose work is a team's own loop: what the loop hands in becomes the update of any other site."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hanse_datapod.pipeline.in_hand import InHand
from hanse_datapod.pipeline.worker import PipelineWorker
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors
from hanse_schemas.schema import OpenSchema

MODEL = {"0": np.zeros((2, 3), np.float32), "1": np.ones(2, np.float32)}


def request(folder: Path, **changes) -> WorkRequest:
    path = folder / "model"
    write_tensors(path, layout_like(MODEL), MODEL)
    return WorkRequest(
        **{"kind": TaskKind.TRAIN, "config": {"model": {"name": "logistic"}, "train": {"epochs": 2}}, "seed": 3,
           "round": 1, "model": path, "output": folder / "update", "state": folder / "state", "time_limit": 20.0,
           **changes}
    )  # fmt: skip


@contextmanager
def loop(worker: PipelineWorker, answer: Callable[[InHand], None]) -> Iterator[list[HanseError]]:
    """A team's loop in its own thread; gives what was refused."""
    refused: list[HanseError] = []

    def run() -> None:
        while (task := worker.next_task()) is not None:
            try:
                answer(task)
            except HanseError as error:
                refused.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield refused
    worker.end()
    thread.join(20)
    assert not thread.is_alive()


async def done(folder: Path, answer: Callable[[InHand], None], **changes) -> WorkOutcome:
    worker = PipelineWorker((), 40)
    with loop(worker, answer) as refused:
        made = await worker.work(request(folder, **changes), lambda _fraction, _text: None)
    assert not refused
    return made


def plus_one(task: InHand) -> None:
    task.push({name: array.astype(np.float64) + 1 for name, array in task.model.items()}, 7, {"loss": 0.5})


async def test_what_was_pushed_leaves_as_the_change_of_the_tasks_model(tmp_path: Path) -> None:
    seen = []

    def answer(task: InHand) -> None:
        seen.append(task)
        plus_one(task)

    made = await done(tmp_path, answer)
    assert (made.examples, made.metrics, made.code_digest) == (7, {"loss": 0.5}, None)
    assert {name: array.tolist() for name, array in read_tensors(made.update)[1].items()} == {
        "0": [[1.0] * 3] * 2, "1": [1.0] * 2,
    }  # fmt: skip
    (task,) = seen
    assert (task.kind, task.round, task.seed, task.config["train"]) == ("train", 1, 3, {"epochs": 2})


async def test_a_first_model_is_made_and_metrics_are_reported(tmp_path: Path) -> None:
    first = await done(tmp_path, lambda task: task.push(MODEL, 0, {}), kind=TaskKind.INITIALIZE, model=None, round=0)
    assert read_tensors(first.update)[1]["1"].tolist() == [1.0, 1.0]
    told = await done(tmp_path, lambda task: task.report(9, {"accuracy": 0.75}), kind=TaskKind.EVALUATE)
    assert (told.update, told.examples, told.metrics) == (None, 9, {"accuracy": 0.75})


async def test_private_changes_are_clipped_and_a_failure_answers_with_nothing_learnt(tmp_path: Path) -> None:
    config = {"privacy": {"mechanism": "gaussian", "clip": 0.5, "scale": 0.0}}
    made = await done(tmp_path, plus_one, config=config)
    change = np.concatenate([array.reshape(-1) for array in read_tensors(made.update)[1].values()])
    assert np.linalg.norm(change) == pytest.approx(0.5, rel=1e-3)
    assert made.metrics == {}, "no noise covers them"
    failed = await done(tmp_path, lambda task: task.fail("patient 17 has no scan"), config=config)
    assert not np.concatenate([array.reshape(-1) for array in read_tensors(failed.update)[1].values()]).any()


async def test_what_stays_at_the_site_is_there_in_the_next_round(tmp_path: Path) -> None:
    """The loop makes its local entries once, as the first model, and is given them as it left them."""
    config = {"model": {"name": "own", "state": [{"match": "1", "keep": "local"}]}}
    write_tensors(tmp_path / "model", layout_like({"0": MODEL["0"]}), {"0": MODEL["0"]})
    seen = []

    def answer(task: InHand) -> None:
        if task.kind == "initialize":
            task.push(MODEL, 0, {})
        else:
            seen.append(task.model["1"].tolist())
            plus_one(task)

    worker = PipelineWorker((), 40)
    with loop(worker, answer) as refused:
        for number in (1, 2):
            asked = replace(request(tmp_path, config=config, round=number), model=tmp_path / "travels")
            write_tensors(tmp_path / "travels", layout_like({"0": MODEL["0"]}), {"0": MODEL["0"]})
            made = await worker.work(asked, lambda _fraction, _text: None)
            assert list(read_tensors(made.update)[1]) == ["0"]
    assert (seen, refused) == ([[1.0, 1.0], [2.0, 2.0]], [])


async def test_a_task_that_is_given_up_is_gone_for_the_loop(tmp_path: Path) -> None:
    taken, given_up = threading.Event(), threading.Event()

    def answer(task: InHand) -> None:
        taken.set()
        given_up.wait(20)
        plus_one(task)

    worker = PipelineWorker((), 40)
    with loop(worker, answer) as refused:
        work = asyncio.create_task(worker.work(request(tmp_path), lambda _fraction, _text: None))
        await asyncio.to_thread(taken.wait, 20)
        work.cancel()
        await asyncio.wait({work})
        given_up.set()
    assert work.cancelled()
    assert [error.code for error in refused] == [ErrorCode.GONE]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda task: task.push({"0": MODEL["0"]}, 1, {}), "1 is missing"),
        (lambda task: task.push({**MODEL, "2": MODEL["1"]}, 1, {}), r"model: \['2'\]"),
        (lambda task: task.push({**MODEL, "1": np.ones(3)}, 1, {}), r"model entry 1: \(3,\)"),
        (lambda task: task.push({**MODEL, "1": np.array([1.0, np.nan])}, 1, {}), "model entry 1.*finite"),
        (lambda task: task.report(1, {}), "a model, by push"),
    ],
)
async def test_an_answer_that_does_not_fit_is_an_error_in_the_loop_and_the_task_stays_open(
    answer: Callable[[InHand], None], said: str, tmp_path: Path
) -> None:
    def tries(task: InHand) -> None:
        with pytest.raises(HanseError, match=said):
            answer(task)
        plus_one(task)
        with pytest.raises(HanseError) as twice:
            plus_one(task)
        assert twice.value.code is ErrorCode.GONE

    assert (await done(tmp_path, tries)).examples == 7


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"kind": TaskKind.PREPARE}, ErrorCode.POLICY, "prepare"),
        ({"extras": {"control": Path("x")}}, ErrorCode.POLICY, "exchange more than the model"),
        ({"config": {"privacy": {"mechanism": "dp_sgd", "clip": 1.0, "scale": 1.0, "steps": 1, "batch": 1}}},
         ErrorCode.INVALID_INPUT, "dp_sgd"),
        ({"time_limit": 0.05}, ErrorCode.TIMEOUT, "has not answered in the time"),
    ],
)  # fmt: skip
async def test_what_a_loop_cannot_give_is_refused_with_the_reason(
    changes: dict, code: ErrorCode, said: str, tmp_path: Path
) -> None:
    worker = PipelineWorker((), 40)
    with pytest.raises(HanseError, match=said) as refusal:
        await worker.work(request(tmp_path, **changes), lambda _fraction, _text: None)
    assert refusal.value.code is code


async def test_the_data_are_the_same_as_long_as_their_bytes_are(tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    (folder / "a.npy").write_bytes(b"1")

    async def seen(*data: Path) -> str:
        summary = await PipelineWorker(data, 40).check_data(OpenSchema())
        assert summary.examples == 40
        return summary.fingerprint

    first = await seen(folder)
    assert await seen(folder) == first
    (folder / "a.npy").write_bytes(b"2")
    assert await seen(folder) != first
    assert await seen() != await seen(), "what nobody names may have changed with each start"
    with pytest.raises(HanseError, match="no such file or folder"):
        await seen(tmp_path / "absent")
