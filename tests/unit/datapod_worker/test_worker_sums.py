"""Sums in the middle of a worker's task: asked of the agent through the pipe, and what becomes of them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.shared import SharedWorker
from hanse_datapod.worker.port import DATA_KEY, AskSum, WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import read_tensors
from hanse_schemas.schema import ArraySchema
from own_worker import OwnWorker

SCHEMA = ArraySchema(shape=(3,), classes=2)
MODEL = {"name": "mlp", "hidden": [6, 4], "batch_norm": True}
TRAIN = {"algorithm": "fedtan", "steps": 2, "batch_size": "all"}


class Table:
    """Where two sites' sums meet; what has been said stays, as on the bus."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._given: dict[str, dict[str, np.ndarray]] = {}
        self._news = asyncio.Condition()
        self.before: Callable[[str, str], None] = lambda _name, _key: None

    def of(self, name: str) -> AskSum:
        async def give(key: str, values: bytes) -> bytes:
            self.before(name, key)
            if key in (DATA_KEY, "end"):
                return b""
            async with self._news:
                self._given.setdefault(key, {}).setdefault(name, np.frombuffer(values, "<f8"))
                self._news.notify_all()
                await self._news.wait_for(lambda: len(self._given[key]) == self._count)
            return bytes(sum(self._given[key][one] for one in sorted(self._given[key])).tobytes())

        return give


def data_of(folder: Path, name: str, size: int) -> DataSettings:
    rng = np.random.default_rng(size)
    y = np.arange(size) % 2
    np.savez(folder / f"{name}.npz", x=(rng.normal(size=(size, 3)) + size).astype(np.float32), y=y)
    return DataSettings(train=folder / f"{name}.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sums")


@pytest.fixture
async def workers(folder: Path) -> AsyncIterator[dict[str, OwnWorker]]:
    made = {name: OwnWorker(data_of(folder, name, size), schema=SCHEMA) for name, size in (("a", 5), ("b", 12))}
    for worker in made.values():
        await worker.start()
    yield made
    for worker in made.values():
        await worker.close()


def request(folder: Path, name: str, model: Path | None, exchange: AskSum | None) -> WorkRequest:
    kind = TaskKind.INITIALIZE if model is None else TaskKind.TRAIN
    return WorkRequest(
        kind, {"model": MODEL, "train": TRAIN}, 7, 1, model, folder / f"{name}.out", folder / name, 60.0,
        exchange=exchange,
    )  # fmt: skip


async def trained(
    folder: Path, workers: dict[str, OwnWorker], model: Path, table: Table
) -> dict[str, dict[str, np.ndarray]]:
    async def one(name: str) -> WorkOutcome:
        asked = request(folder, name, model, table.of(name))
        for _ in range(2):
            try:
                return await workers[name].work(asked, lambda *_: None)
            except HanseError as error:
                if error.code is not ErrorCode.UNAVAILABLE:
                    raise
        raise AssertionError

    outcomes = dict(zip("ab", await asyncio.gather(one("a"), one("b")), strict=True))
    assert {outcome.metrics["sums"] for outcome in outcomes.values()} == {6.0}
    return {name: {k: v.copy() for k, v in read_tensors(folder / f"{name}.out")[1].items()} for name in outcomes}


async def test_a_worker_killed_between_two_sums_ends_with_the_same_bits(
    folder: Path, workers: dict[str, OwnWorker]
) -> None:
    async with asyncio.timeout(120):
        model = (await workers["a"].work(request(folder, "first", None, None), lambda *_: None)).update
        assert model is not None
        plain = await trained(folder, workers, model, Table(2))
        table, killed = Table(2), []

        def kill(name: str, key: str) -> None:
            if (name, key) == ("b", "l1-var") and not killed:
                killed.append(workers["b"].pid)
                process = psutil.Process(killed[0])
                os.kill(killed[0], signal.SIGKILL)
                # Its memory is given back first: on a busy machine the other's sums could end before it does.
                with suppress(psutil.NoSuchProcess):
                    while process.status() != psutil.STATUS_ZOMBIE:
                        time.sleep(0.005)

        table.before = kill
        again = await trained(folder, workers, model, table)
        assert killed
        assert workers["b"].pid not in killed
    for name, arrays in plain.items():
        for key, array in arrays.items():
            assert np.array_equal(array, again[name][key]), (name, key)


async def test_a_sum_that_does_not_come_ends_the_task_with_its_reason_and_leaves_the_process_warm(
    folder: Path, workers: dict[str, OwnWorker]
) -> None:
    async def refuse(key: str, _values: bytes) -> bytes:
        if key == DATA_KEY:
            return b""
        raise HanseError(ErrorCode.QUORUM, f"exchange {key}: nobody else", hint="none")

    async with asyncio.timeout(120):
        model = (await workers["a"].work(request(folder, "lone", None, None), lambda *_: None)).update
        pid = workers["a"].pid
        with pytest.raises(HanseError) as raised:
            await workers["a"].work(request(folder, "a", model, refuse), lambda *_: None)
        assert (raised.value.code, raised.value.message) == (ErrorCode.QUORUM, "exchange l0-mean: nobody else")
        with pytest.raises(HanseError) as raised:
            await workers["a"].work(request(folder, "a", model, None), lambda *_: None)
        assert raised.value.code is ErrorCode.INVALID_INPUT
        assert workers["a"].pid == pid


async def test_participants_that_share_a_process_cannot_wait_for_each_other_in_it(folder: Path) -> None:
    shared = SharedWorker()
    worker = shared.participant(data_of(folder, "s", 4))
    try:
        async with asyncio.timeout(120):
            model = (await worker.work(request(folder, "shared", None, None), lambda *_: None)).update
            with pytest.raises(HanseError, match="process of its own"):
                await worker.work(request(folder, "s", model, Table(1).of("s")), lambda *_: None)
    finally:
        await shared.close()
