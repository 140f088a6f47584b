"""A site whose policy gives a training several processes: the same model, the same limits, and no rank that is lost."""

import asyncio
import os
import signal
import socket
from dataclasses import replace

import numpy as np
import psutil
import pytest

from forked_workers import RANK_NAME
from hanse_datapod.worker.ranks import launch
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.tensors.file import read_tensors
from own_worker import OwnWorker
from unit.datapod_worker.test_worker_process import (
    SCHEMA,
    data,
    initialized,
    request,
    script,
    silent,
    worker,
)

__all__ = ["data", "worker"]
TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def ranks_are_forked(worker_nursery):
    """They begin with torch loaded, but where their start is the point: a test of `started_as_programs`."""
    worker_nursery.ranks = True
    yield
    worker_nursery.ranks = False


@pytest.fixture
def started_as_programs(ranks_are_forked, worker_nursery):
    worker_nursery.ranks = False


async def ranks_of(worker, count):
    """The processes that train, once there are so many."""
    async with asyncio.timeout(120):
        while True:
            below = psutil.Process(worker.pid).children(recursive=True)
            found = [each for each in below if _name(each) == RANK_NAME]
            if len(found) == count:
                return sorted(found, key=lambda each: each.pid)
            await asyncio.sleep(0.05)


def _name(process):
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


async def test_two_processes_make_the_model_of_one_and_the_same_bits_again_also_after_one_has_died(worker, tmp_path):
    model = await initialized(worker, tmp_path)
    told = []
    made = []

    async def trains(processes):
        asked = request(tmp_path, TaskKind.TRAIN, model=model, processes=processes)
        outcome = await worker.work(asked, lambda _done, text: told.append(text))
        made.append((outcome, read_tensors(outcome.update)[1], outcome.update.read_bytes()))

    await trains(1)
    await trains(2)
    await loses_a_rank(worker, request(tmp_path, TaskKind.TRAIN, model=model, train={"epochs": 2000}, processes=2))
    await trains(2)
    (one, alone, _), (two, both, bits), (_, _, again) = made
    for name, change in alone.items():
        np.testing.assert_allclose(both[name], change, atol=TOLERANCE, rtol=0, err_msg=name)
        assert np.abs(change).max() > 50 * TOLERANCE
    assert bits == again
    assert (two.examples, two.info) == (one.examples, one.info)
    assert two.metrics == pytest.approx(one.metrics, abs=TOLERANCE)
    assert two.data == one.data
    assert told
    assert (await worker.work(request(tmp_path, TaskKind.EVALUATE, model=model, processes=2), silent)).examples == 16


async def loses_a_rank(worker, long):
    """One that dies ends the work."""
    begun = asyncio.Event()
    working = asyncio.create_task(worker.work(long, lambda _done, _text: begun.set()))
    ranks = await ranks_of(worker, 2)
    async with asyncio.timeout(120):
        await begun.wait()
    os.kill(ranks[1].pid, signal.SIGKILL)  # the first that was started is rank 0
    with pytest.raises(HanseError, match=r"process 1 of the 2 that train together ended \(status -9\)") as caught:
        async with asyncio.timeout(60):
            await working
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert not psutil.pid_exists(ranks[0].pid)


async def test_what_steps_depend_on_more_than_their_batch_is_trained_in_one_process(worker, tmp_path):
    model = await initialized(worker, tmp_path)
    train = {"algorithm": {"name": "per_fedavg"}}
    made = []
    for processes in (1, 2):
        asked = request(tmp_path, TaskKind.TRAIN, model=model, train=train, processes=processes)
        outcome = await worker.work(asked, silent)
        made.append((outcome.update.read_bytes(), outcome.note))
    assert made[0][0] == made[1][0]
    assert made[0][1] == ""
    assert made[1][1] == "trained in one process: a step of algorithm per_fedavg is not a mean over its batch alone"


INITIALIZE = """
import os
import numpy as np
def initialize(config):
    return {"weights": np.zeros(2, np.float32)}
"""


async def test_the_time_limit_ends_all_ranks(tmp_path, data):
    code = INITIALIZE + "import time\ndef train(model, data, config):\n    time.sleep(100)\n"
    own = {"code": script(tmp_path, code), "architecture": {"features": 2}}
    worker = OwnWorker(data, own["code"], SCHEMA)
    try:
        own["model"] = await initialized(worker, tmp_path, **own)
        long = request(tmp_path, TaskKind.TRAIN, processes=2, time_limit=10.0, **own)
        working = asyncio.create_task(worker.work(long, silent))
        ranks = await ranks_of(worker, 2)
        with pytest.raises(HanseError, match="within 10 s") as caught:
            await working
    finally:
        await worker.close()
    assert caught.value.code is ErrorCode.TIMEOUT
    assert not [each for each in ranks if psutil.pid_exists(each.pid)]


async def test_the_memory_limit_is_of_all_ranks_together(tmp_path, data):
    """Each keeps below the limit, and both together do not: they are ended long before they would end."""
    code = (
        INITIALIZE
        + """
import time
def train(model, data, config):
    held = np.ones(400 << 17)
    time.sleep(60 if "RANK" in os.environ else 1)
    return model, len(held) and 1, {}
"""
    )
    own = {"code": script(tmp_path, code), "architecture": {"features": 2}}
    worker = OwnWorker(data, own["code"], SCHEMA)
    try:
        own |= {"model": await initialized(worker, tmp_path, **own), "memory_limit": 1 << 30}
        assert (await worker.work(request(tmp_path, TaskKind.TRAIN, **own), silent)).examples == 1
        with pytest.raises(HanseError, match="MiB of memory") as caught:
            await worker.work(request(tmp_path, TaskKind.TRAIN, processes=2, **own), silent)
    finally:
        await worker.close()
    assert caught.value.code is ErrorCode.TOO_LARGE


async def test_site_code_trains_over_its_ranks_what_one_process_trains(tmp_path, data):
    """By what torch has for it, DDP and FSDP; the whole model is gathered at rank 0, which speaks for all. They see
    what torchrun gives."""
    text = """
import os, torch
from copy import deepcopy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from hanse_learning.site.ranks import Ranks, join

def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().numpy().copy()

def fully(model, ranks):
    return fully_shard(model, mesh=init_device_mesh("cpu", (ranks.count,)))

def trained(model, data, ranks, wrapped):
    x = torch.from_numpy(data.x)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (wrapped(x[ranks.share(len(x))]) - 1).square().mean().backward()
        optimizer.step()
    return {name: whole(value) for name, value in model.state_dict().items()}

def train(model, data, config):
    if "RANK" not in os.environ:
        return trained(model, data, Ranks(0, 1), model), len(data.x), {}
    ranks = join(device=config["device"])
    sharded = deepcopy(model)
    by_ddp = trained(model, data, ranks, DistributedDataParallel(model))
    by_fsdp = trained(sharded, data, ranks, fully(sharded, ranks))
    seen = torch.tensor([0.0, 0.0])
    seen[int(os.environ["RANK"])] = int(os.environ["WORLD_SIZE"]) + float(os.environ["LOCAL_RANK"])
    torch.distributed.all_reduce(seen)
    apart = max(abs(by_ddp[name] - by_fsdp[name]).max() for name in by_ddp)
    told = {"first": seen[0].item(), "second": seen[1].item(), "apart": float(apart)}
    return None if ranks.rank else (by_ddp, len(data.x), told)
"""
    worker = OwnWorker(data, code := script(tmp_path, text), SCHEMA)
    made = []
    try:
        model = await initialized(worker, tmp_path, code=code)
        for processes in (1, 2):
            asked = request(tmp_path, TaskKind.TRAIN, model=model, code=code, processes=processes)
            outcome = await worker.work(asked, silent)
            made.append((outcome, read_tensors(outcome.update)[1]))
    finally:
        await worker.close()
    (one, alone), (two, both) = made
    for name, change in alone.items():
        np.testing.assert_allclose(both[name], change, atol=TOLERANCE / 2, rtol=0, err_msg=name)
        assert np.abs(change).max() > 50 * TOLERANCE
    assert two.examples == one.examples == 64
    assert (two.metrics["first"], two.metrics["second"]) == (2, 3)
    assert two.metrics["apart"] <= TOLERANCE / 2, "by FSDP as by DDP"


async def test_private_training_of_two_processes_has_noise_once(started_as_programs, worker, tmp_path):
    """Without a rate to learn by, the update is noise alone: its size tells how often it was drawn."""
    model = await initialized(worker, tmp_path)
    told = {"mechanism": "dp_sgd", "clip": 1e-6, "scale": 1.0, "steps": 30, "batch": 8, "rate": 0.125}
    spread = []
    for processes in (1, 2):
        asked = request(tmp_path, TaskKind.TRAIN, model=model, train={"optimizer": {"lr": 0.8}}, processes=processes)
        outcome = await worker.work(replace(asked, config=asked.config | {"privacy": told}), silent)
        change = np.concatenate([each.ravel() for each in read_tensors(outcome.update)[1].values()])
        spread.append(float(np.sqrt(np.mean(change**2))))
    expected = 0.8 * 1.0 / 8 * np.sqrt(30)
    assert spread == pytest.approx([expected] * 2, rel=0.35)  # of 42 numbers; two draws would be 1.41 times it


async def test_what_a_rank_raises_is_the_owners_to_read_and_private_work_never_fails_on_its_data(tmp_path, data):
    """Private work is answered by noise alone, as of one process, also where the first rank is through."""
    text = (
        INITIALIZE
        + """
import torch
def train(model, data, config):
    rank = os.environ.get("RANK", "1")
    if config["train"]["waits"]:
        torch.distributed.init_process_group("gloo")
    if rank == "1":
        raise ValueError("this one's data")
    if config["train"]["waits"]:
        torch.distributed.barrier()
    return model, 1, {}
"""
    )
    worker = OwnWorker(data, code := script(tmp_path, text), SCHEMA)
    own = {"code": code, "architecture": {"features": 2}}
    try:
        own["model"] = await initialized(worker, tmp_path, **own)
        asked = request(tmp_path, TaskKind.TRAIN, processes=2, train={"waits": False}, **own)
        told = {"mechanism": "gaussian", "clip": 1.0, "scale": 1.0}
        outcome = await worker.work(replace(asked, config=asked.config | {"privacy": told}), silent)
        assert np.abs(read_tensors(outcome.update)[1]["weights"]).min() > 0
        waiting = request(tmp_path, TaskKind.TRAIN, processes=2, train={"waits": True}, **own)
        with pytest.raises(HanseError, match=r"site code mine.py, line \d+: train raised ValueError") as caught:
            await worker.work(waiting, silent)
        assert caught.value.code is ErrorCode.TRAINING_FAILED
    finally:
        await worker.close()


async def test_without_a_loopback_the_task_is_refused(monkeypatch, tmp_path):
    """As in a container, where the sandbox leaves sockets of the machine alone."""

    def refused(*_arguments):
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refused)
    with pytest.raises(HanseError, match=r"limits.processes 2: .*loopback") as caught:
        launch.divide({"processes": 2, "output": str(tmp_path / "update")}, "cpu", print)
    assert caught.value.code is ErrorCode.POLICY


def test_more_processes_than_gpus_are_refused(tmp_path):
    with pytest.raises(HanseError, match=r"policy.limits.processes: 64 is not at most \d+, the GPUs"):
        launch.divide({"processes": 64, "output": str(tmp_path / "update")}, "cuda:0", print)
