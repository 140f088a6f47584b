"""A pool's workers: one that dies loses its task to another, withdrawn work stops, and nothing leaves the folder."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from forked_workers import Nursery
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.client.shared import PlacingWorker, SharedWorker
from hanse_datapod.worker.pool.choice import Pool
from hanse_datapod.worker.pool.client import PoolClient
from hanse_datapod.worker.pool.files import PoolFolder, read_json, write_json
from hanse_datapod.worker.pool.heartbeats import Heartbeats
from hanse_datapod.worker.pool.staging import fetch, placed
from hanse_datapod.worker.pool.working import PoolWorker
from hanse_datapod.worker.port import DATA_KEY, AskSum, WorkRequest
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import ArraySchema

SCHEMA = ArraySchema(shape=(2,), classes=2)
POOL = "lab"
PATIENCE_S = 240.0
TAN = {"algorithm": "fedtan", "steps": 2, "batch_size": "all"}
"""Training that asks for sums while it is under way."""


class Clock:
    """A clock that moves by `step` seconds at each look and else stands still: no worker is late on a busy machine."""

    now = step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def silent(_fraction: float, _text: str) -> None:
    return None


@pytest.fixture
def data(tmp_path: Path) -> DataSettings:
    y = np.arange(40) % 2
    x = (np.random.default_rng(0).normal(size=(40, 2)) + 3 * y[:, None]).astype(np.float32)
    np.savez(tmp_path / "ward.npz", x=x, y=y)
    return DataSettings(train=tmp_path / "ward.npz")


def request(
    folder: Path, model: Path | None, *, epochs: int = 2, train: dict[str, Any] | None = None,
    exchange: AskSum | None = None,
) -> WorkRequest:  # fmt: skip
    kind = TaskKind.INITIALIZE if model is None else TaskKind.TRAIN
    built = {"name": "mlp", "hidden": [4], "batch_norm": True, "buffers": {"norm0.*": "keep_local"}}
    config = {"model": built, "train": train or {"epochs": epochs}}
    output = folder / f"{kind.value}.safetensors"
    return WorkRequest(kind, config, 7, 1, model, output, folder / "state", PATIENCE_S, exchange=exchange)


def trees(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


POOL_PROGRAM = """
import sys
from hanse_datapod.process.nursery import _fork_worker
_fork_worker()
from hanse_datapod.worker.pool.__main__ import main
sys.exit(main())
"""
"""Its child is forked, too, as a datapod's of a nursery is: both begin with torch loaded."""


@pytest.fixture
def started(tmp_path: Path, worker_nursery: Nursery) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts workers as the site's administrator does; tests/e2e/test_devices_run.py starts the program."""
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        words, environment = ("--pool", POOL, "--folder", str(tmp_path / "shared")), {"HANSE_HEALTH_PORT": "0"}
        processes.append(worker_nursery.start(POOL_PROGRAM, *words, environment=environment | {"PATH": "/usr/bin"}))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


async def test_the_task_of_a_worker_that_is_killed_is_done_by_another_to_the_same_bits(
    data: DataSettings, tmp_path: Path, started: Callable[[], subprocess.Popen[bytes]]
) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    for folder in (calm, killed):
        folder.mkdir()
    clock = Clock()
    client = PoolClient(tmp_path / "shared", POOL, clock=clock)
    pooled, began = ProcessWorker(data, client), asyncio.Event()
    pooled.use(SCHEMA)
    await client.start()
    async with asyncio.timeout(PATIENCE_S):
        first = started()
        model = (await pooled.work(request(calm, None), silent)).update
        await pooled.work(request(calm, model), silent)
        long = request(killed, model, epochs=20_000)
        working = asyncio.create_task(pooled.work(long, lambda *_: began.set()))
        await began.wait()
        child = psutil.Process(first.pid).children()[0]
        first.kill()
        await asyncio.to_thread(first.wait)
        clock.step = 10.0
        with pytest.raises(HanseError, match="gives no sign of life") as caught:
            await working
        clock.step = 0.0
        assert caught.value.code is ErrorCode.UNAVAILABLE
        psutil.wait_procs([child], timeout=60)
        assert not child.is_running()
        started()
        await pooled.work(request(killed, model), silent)
    assert {name: data for name, data in trees(calm).items() if "initialize" not in name} == trees(killed)
    assert "state/local-1.safetensors" in trees(killed)


async def test_a_worker_that_is_told_to_stop_gives_its_task_back_at_once(
    data: DataSettings, tmp_path: Path, started: Callable[[], subprocess.Popen[bytes]]
) -> None:
    client = PoolClient(tmp_path / "shared", POOL, dead_s=600)
    pooled, began = ProcessWorker(data, client), asyncio.Event()
    pooled.use(SCHEMA)
    await client.start()
    async with asyncio.timeout(PATIENCE_S):
        process = started()
        model = (await pooled.work(request(tmp_path, None), silent)).update
        working = asyncio.create_task(pooled.work(request(tmp_path, model, epochs=20_000), lambda *_: began.set()))
        await began.wait()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(HanseError, match="told to stop") as caught:
            await working
        assert caught.value.code is ErrorCode.UNAVAILABLE
        assert await asyncio.to_thread(process.wait) == 0
    assert client.workers() == 0
    files = PoolFolder(tmp_path / "shared", POOL)
    assert [*files.requests.iterdir(), *files.taken.iterdir(), *files.work.iterdir(), *files.workers.iterdir()] == []


@pytest.fixture
async def pooled(data: DataSettings, tmp_path: Path) -> AsyncIterator[ProcessWorker]:
    """A worker whose one pool worker lives in this process."""
    worker, stopping = PoolWorker(tmp_path / "shared", POOL), asyncio.Event()
    client = PoolClient(tmp_path / "shared", POOL, dead_s=600)
    made = ProcessWorker(data, client)
    made.use(SCHEMA)
    await client.start()
    run = asyncio.create_task(worker.run(stopping))
    yield made
    stopping.set()
    await run


async def test_everything_in_the_folder_is_the_owners_alone(pooled: ProcessWorker, tmp_path: Path) -> None:
    """Looked at while the worker waits for a sum, in the middle of its work."""
    seen: dict[Path, int] = {}

    async def look(_key: str, values: bytes) -> bytes:
        for path in (tmp_path / "shared").rglob("*"):
            with suppress(FileNotFoundError):
                seen[path] = path.stat().st_mode
        return values

    model = (await pooled.work(request(tmp_path, None), silent)).update
    await pooled.work(request(tmp_path, model, train=TAN, exchange=look), silent)
    folders = {path: stat.S_IMODE(mode) for path, mode in seen.items() if stat.S_ISDIR(mode)}
    assert any(path.parent.name == "work" for path in folders)
    assert {path: mode for path, mode in folders.items() if mode != 0o700} == {}
    messages = {path: stat.S_IMODE(mode) for path, mode in seen.items() if path.suffix == ".json"}
    assert any(path.parent.name == "taken" for path in messages)
    assert {path: mode for path, mode in messages.items() if mode != 0o600} == {}


async def test_sums_in_the_middle_of_the_work_go_through_the_folder(pooled: ProcessWorker, tmp_path: Path) -> None:
    keys: list[str] = []

    async def alone(key: str, values: bytes) -> bytes:
        keys.append(key)
        return values

    async def refuse(key: str, _values: bytes) -> bytes:
        if key == DATA_KEY:
            return b""
        raise HanseError(ErrorCode.QUORUM, f"exchange {key}: nobody else", hint="none")

    model = (await pooled.work(request(tmp_path, None), silent)).update
    outcome = await pooled.work(request(tmp_path, model, train=TAN, exchange=alone), silent)
    assert outcome.metrics["sums"] == len([key for key in keys if key not in (DATA_KEY, "end")]) > 0
    assert keys[0] == DATA_KEY
    with pytest.raises(HanseError) as caught:
        await pooled.work(request(tmp_path, model, train=TAN, exchange=refuse), silent)
    assert (caught.value.code, caught.value.message) == (ErrorCode.QUORUM, "exchange l0-mean: nobody else")


async def test_a_pool_without_workers_says_so(data: DataSettings, tmp_path: Path) -> None:
    client = PoolClient(tmp_path / "shared", POOL)
    await client.start()
    with pytest.raises(
        HanseError, match=r"pool lab: none of its workers took the task within 0\.2 s \(0 are"
    ) as caught:
        await client.request({"operation": "check"}, time_limit=0.2, memory_limit=None, on_progress=silent)
    assert caught.value.code is ErrorCode.TIMEOUT


async def test_requests_of_an_earlier_agent_are_dropped(tmp_path: Path) -> None:
    files = PoolFolder(tmp_path, POOL)
    files.make()
    for path in (files.requests / "a.json", files.taken / "b@w.json", files.work / "b" / "state" / "x"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    await PoolClient(tmp_path, POOL).start()
    assert [path for path in files.root.rglob("*") if path.is_file()] == []


def test_a_worker_is_dead_when_its_heartbeat_stands_still_by_the_observers_clock(tmp_path: Path) -> None:
    now = [0.0]
    beats, file = Heartbeats(tmp_path, dead_s=10, clock=lambda: now[0]), tmp_path / "w.json"
    assert not beats.alive("w")
    file.write_text(json.dumps({"beats": 1}))
    beats.look()
    now[0] = 9.0
    file.write_text(json.dumps({"beats": 2}))
    beats.look()
    now[0] = 18.0
    beats.look()
    assert (beats.alive("w"), beats.count()) == (True, 1)
    now[0] = 20.0
    assert (beats.alive("w"), beats.count()) == (False, 0)
    now[0] = 10_000.0
    beats.look()
    assert not file.exists()


@pytest.mark.parametrize("linked", ["made", "state", "state/local-1"])
@pytest.mark.parametrize("same_disk", [True, False])
def test_links_made_by_site_code_do_not_lead_to_the_datapods_own_files(
    tmp_path: Path, linked: str, same_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = tmp_path / "home", tmp_path / "shared"
    for each in (home / "keys", home / "state", folder / "state"):
        each.mkdir(parents=True)
    (home / "keys" / "signing.pem").write_text("secret")
    (folder / "made").write_text("update")
    if linked == "state":
        (folder / "state").rmdir()
    (folder / linked).unlink(missing_ok=True)
    (folder / linked).symlink_to(home / "keys" if linked == "state" else home / "keys" / "signing.pem")
    if not same_disk:
        monkeypatch.setattr(Path, "replace", _other_disk)
    body = {"operation": "work", "output": str(home / "update"), "state": str(home / "state")}
    with suppress(HanseError):
        fetch(body, {"update": True, "extras": []}, folder)
    assert (home / "keys" / "signing.pem").read_text() == "secret"
    taken = [path for path in (home / "update", *(home / "state").iterdir()) if os.path.lexists(path)]
    assert [path.name for path in taken if path.is_symlink() or path.read_text() == "secret"] == []


def _other_disk(self: Path, target: Path) -> Path:
    if self.parent != target.parent:
        raise OSError(errno.EXDEV, "another disk")
    os.rename(self, target)  # noqa: PTH104 - what it stands for
    return target


def test_a_message_is_not_written_through_a_link(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_text("spent")
    (tmp_path / f".sum-0.told.{os.getpid()}").symlink_to(ledger)
    write_json(tmp_path / "sum-0.told", {"values": ""})
    assert ledger.read_text() == "spent"
    (tmp_path / "answer.json").symlink_to(ledger)
    with pytest.raises(OSError, match="symbolic links"):
        read_json(tmp_path / "answer.json")


@pytest.mark.parametrize("name", ["../../home/keys", "/etc/passwd", "..", ""])
def test_a_request_names_nothing_outside_its_folder(tmp_path: Path, name: str) -> None:
    body = {"operation": "work", "model": name, "output": "made", "state": "state", "extras": {}}
    with pytest.raises(HanseError, match="is not the name of a file in its folder"):
        placed(body, tmp_path)


async def test_a_site_with_pools_does_each_task_where_it_fits_and_tells_of_its_devices(
    data: DataSettings, tmp_path: Path
) -> None:
    pools = (Pool(name="large", device="cpu", memory_gib=4096), Pool(name="a100", device="gpu", memory_gib=80))
    shared = SharedWorker(participants=1, device="cuda", pools=pools, pool_folder=tmp_path / "shared")
    worker = shared.participant(data)
    assert isinstance(worker, PlacingWorker)
    large, stopping = PoolWorker(tmp_path / "shared", "large"), asyncio.Event()
    run = asyncio.create_task(large.run(stopping))
    try:
        await shared.start()
        summary = await worker.check_data(SCHEMA)
        assert "HANSE_DEVICE is cuda, but torch" in summary.device.warning
        model = (await worker.work(request(tmp_path, None), silent)).update
        here = await worker.work(request(tmp_path, model), silent)
        assert "HANSE_DEVICE is cuda" in here.note
        local = here.update.read_bytes() if here.update is not None else b""
        there = {"epochs": 2, "resources": {"memory_gib": 4000}}
        made = await worker.work(request(tmp_path, model, train=there), silent)
        assert made.note == ""
        assert made.update is not None
        assert made.update.read_bytes() == local
        wanted = {"epochs": 2, "resources": {"device": "prefer-gpu"}}
        fallen = await worker.work(request(tmp_path, model, train=wanted), silent)
        assert "no worker of a100 is at work: the processor is used" in fallen.note
        with pytest.raises(HanseError, match="device gpu with 100 GiB is asked for") as caught:
            worker.require({"train": {"resources": {"device": "gpu", "memory_gib": 100}}})
        assert caught.value.code is ErrorCode.NO_DEVICE
        assert worker.device.startswith("cpu (HANSE_DEVICE is cuda, but torch")
        assert "; pool large (cpu, 4096 GiB): 1 at work; pool a100 (gpu, 80 GiB): 0 at work" in worker.device
    finally:
        stopping.set()
        await run
        await shared.close()


async def test_site_code_that_shall_run_apart_runs_in_a_pool_alone(data: DataSettings, tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "import numpy as np\n"
        "def load(): return {'train': (np.ones((6, 2), np.float32), np.arange(6) % 2)}\n"
        "def initialize(config): return {'weights': np.zeros(2, np.float32)}\n"
        "def train(model, data, config): return model, len(data), {}\n"
    )
    apart = SandboxPolicy(apart=True)
    with pytest.raises(HanseError, match="a site with pools"):
        SharedWorker(code, participants=1, sandbox=apart).participant(data)
    pools = (Pool(name=POOL, device="cpu"),)
    shared = SharedWorker(code, participants=1, pools=pools, pool_folder=tmp_path / "shared", sandbox=apart)
    worker = shared.participant(DataSettings(kind="code"))
    working, stopping = PoolWorker(tmp_path / "shared", POOL), asyncio.Event()
    run = asyncio.create_task(working.run(stopping))
    asked = request(tmp_path, None)
    named = {"name": "mine", "digest": hashlib.sha256(code.read_bytes()).hexdigest()}
    config = {"model": {"features": 2}, "code": named, "train": {}}
    try:
        assert (await worker.check_data(SCHEMA)).examples > 0
        first = (await worker.work(replace(asked, config=config), silent)).update
        trained = replace(request(tmp_path, first), config=config)
        assert (await worker.work(trained, silent)).examples > 0
        assert shared._training.pid is None
    finally:
        stopping.set()
        await run
        await shared.close()
