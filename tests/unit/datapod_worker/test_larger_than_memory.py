"""A set ten times the memory limit trains at a site; and what of memory is counted."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

from forked_workers import Nursery
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process_tree import ProcessTree
from hanse_datapod.worker.client.shared import SharedWorker
from hanse_datapod.worker.port import WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import ArraySchema, Column, LearnableSchema, TabularSchema
from own_worker import OwnWorker

LIMIT = 448 << 20
FEATURES, BLOCK = 500, 65536
ROWS = 10 * LIMIT // 4 // FEATURES // BLOCK * BLOCK + BLOCK
TABLE = TabularSchema(features=tuple(Column(name=f"f{at}") for at in range(FEATURES)), target="ill", classes=2)
PIXELS = ArraySchema(shape=(512, 512), classes=2)
IMAGES = 10 * LIMIT // (4 * 512 * 512) + 1


def block(seed: int, rows: int = BLOCK) -> pa.Table:
    """Rows of short numbers, whose first says what the target is."""
    x = np.random.default_rng(seed).integers(-8, 8, (rows, FEATURES)) / np.float32(4)
    columns = {f"f{at}": x[:, at] for at in range(FEATURES)}
    return pa.table(columns | {"ill": (x[:, 0] > 0).astype(np.int64)})


def parquet(folder: Path) -> Path:
    path = folder / "ward.parquet"
    with pq.ParquetWriter(path, block(0).schema) as writer:
        for seed in range(ROWS // BLOCK):
            writer.write_table(block(seed))
    return path


def csv(folder: Path) -> Path:
    path = folder / "ward.csv"
    texts = []
    for seed in range(4):
        pyarrow.csv.write_csv(block(seed), path, pyarrow.csv.WriteOptions(include_header=not seed))
        texts.append(path.read_bytes())
    with path.open("wb") as file:
        for at in range(ROWS // BLOCK):
            file.write(texts[0] if at == 0 else texts[1 + at % 3])
    return path


def images(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    for at in range(IMAGES):
        (folder / "scans" / str(at % 2)).mkdir(parents=True, exist_ok=True)
        pixels = np.repeat(np.repeat(draw.integers(0, 255, (64, 64), np.uint8), 8, 0), 8, 1)
        Image.fromarray(pixels).save(folder / "scans" / str(at % 2) / f"{at:05}.png")
    return folder / "scans"


@pytest.mark.large
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("make", "schema", "prepares"),
    [(parquet, TABLE, False), (csv, TABLE, False), (images, PIXELS, False), (parquet, TABLE, True)],
    ids=["parquet", "csv", "images", "prepared"],
)
async def test_a_set_ten_times_the_memory_limit_trains(
    tmp_path: Path, make: Callable[[Path], Path], schema: LearnableSchema, prepares: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path, clock = await asyncio.to_thread(make, tmp_path), asyncio.get_running_loop().time
    began, (examples, used) = clock(), await trained(DataSettings(train=path), schema, tmp_path, prepares=prepares)
    each = FEATURES if schema is TABLE else 512 * 512
    assert examples * each * 4 > 0.8 * 10 * LIMIT  # a fifth is set aside
    with capsys.disabled():
        told = f"{examples} examples of {each * 4} bytes in {clock() - began:.0f} s, at most {used >> 20} MiB"
        print(f"\n{make.__name__}{', prepared' if prepares else ''}: {told}")
    assert not [left for left in (tmp_path / "home").iterdir() if left.suffix != ".safetensors"]


@pytest.mark.large
@pytest.mark.timeout(3000)
async def test_of_a_set_that_is_read_into_memory_the_limit_ends_the_training(tmp_path: Path) -> None:
    rows = 2 * LIMIT // (4 * FEATURES)
    np.savez(tmp_path / "ward.npz", x=np.ones((rows, FEATURES), np.float32), y=np.arange(rows) % 2)
    with pytest.raises(HanseError, match=r"MiB of memory, 448 are allowed") as ended:
        await trained(DataSettings(train=tmp_path / "ward.npz"), TABLE, tmp_path, prepares=False)
    assert ended.value.code is ErrorCode.TOO_LARGE


async def trained(
    data: DataSettings, schema: LearnableSchema, folder: Path, *, prepares: bool
) -> tuple[int, int]:  # fmt: skip
    """An epoch at a worker under the limit: (examples, bytes of memory that it held at most)."""
    (home := folder / "home").mkdir()
    worker = OwnWorker(data, schema=schema, memory=LIMIT, scratch=home)
    size = 256 if schema is TABLE else 8  # of images of a MiB
    config = {"model": {"name": "logistic"}, "train": {"epochs": 1, "batch_size": size, "optimizer": {"lr": 0.001}}}
    if prepares:
        given = {"kind": "number", "fill": 0.0, "scale": 2.0}
        columns = [{"name": column.name, **given} for column in TABLE.features]
        config["preparation"] = {"version": 1, "columns": columns}

    def asked(kind: TaskKind, model: Path | None) -> WorkRequest:
        return WorkRequest(
            kind, config, 7, 1, model, home / f"{kind.value}.safetensors", home, time_limit=3000, memory_limit=LIMIT
        )  # fmt: skip

    used = [0]
    try:
        model = (await worker.work(asked(TaskKind.INITIALIZE, None), lambda *_told: None)).update
        watching = asyncio.create_task(watch(ProcessTree(worker.pid or 0), used))
        if not prepares:
            assert (await worker.check_data(schema)).examples
        outcome = await worker.work(asked(TaskKind.TRAIN, model), lambda *_told: None)
        await worker.work(asked(TaskKind.EVALUATE, model), lambda *_told: None)
        watching.cancel()
    finally:
        await worker.close()
    return outcome.examples, used[0]


async def watch(tree: ProcessTree, used: list[int]) -> None:
    while True:
        used[0] = max(used[0], await asyncio.to_thread(tree.memory, 1 << 40))
        await asyncio.sleep(0.05)


_READS_AND_TRAINS = """
import sys, threading, time
from pathlib import Path
from torch import nn
from hanse_datapod.data.load import fingerprint, read_site_data
from hanse_datapod.data.remarks import remarks
from hanse_datapod.data.room import Room
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.data import stored_tables
from hanse_learning.config import check_train
from hanse_learning.site.evaluation import evaluate
from hanse_learning.site.examples import pose
from hanse_learning.site.training import train
from hanse_schemas.schema import Column, TabularSchema

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))) >> 10

def watch():
    while True:
        most[0] = max(most[0], held())
        time.sleep(0.01)

path = Path(sys.argv[1])
schema = TabularSchema(features=tuple(Column(name=f"f{at}") for at in range(32)), target="ill", classes=2)
stored_tables.PIECE_BYTES = 2 << 20
before = held()
most = [before]
threading.Thread(target=watch, daemon=True).start()
data = read_site_data(DataSettings(train=path), schema, None, Room(16 << 20, path.parent))
fingerprint(data), remarks(data, schema)
problem, module = pose(schema, data.train), nn.Linear(32, 2)
train(module, data.train, check_train({"epochs": 1, "batch_size": 1024}), problem, 1, lambda done, text: None)
evaluate(module, data.test, problem)
print((data.train.x.nbytes + data.test.x.nbytes) >> 20, most[0] - before)
"""


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_reading_and_training_hold_a_part_of_the_data_in_memory(
    tmp_path: Path, kind: str, worker_nursery: Nursery
) -> None:  # fmt: skip
    x = np.arange(32, dtype=np.float32) + np.zeros((16384, 1), np.float32)
    table = pa.table({f"f{at}": x[:, at] for at in range(32)} | {"ill": np.arange(16384) % 2})
    path = tmp_path / f"ward.{kind}"
    if kind == "parquet":
        with pq.ParquetWriter(path, table.schema) as writer:
            for _ in range(40):
                writer.write_table(table)
    else:
        pyarrow.csv.write_csv(table, path)
        head, _, rows = path.read_bytes().partition(b"\n")
        path.write_bytes(head + b"\n" + rows * 40)
    done = worker_nursery.run(_READS_AND_TRAINS, str(path))
    assert done.returncode == 0, done.stderr
    size, held = map(int, done.stdout.split())
    assert size == 80
    assert held < size / 2, f"{held} MiB beside {size} MiB of data"


async def test_the_folder_for_such_data_is_there_and_apart_from_the_homes_keys(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    with pytest.raises(HanseError, match=r"scratch: .*a folder that is there"):
        SharedWorker(scratch=tmp_path / "absent")
    with pytest.raises(HanseError, match=r"scratch: .*where this user may write"):
        SharedWorker(scratch=Path("/proc"))
    for wrong in (home, tmp_path, home / "keys"):
        wrong.mkdir(exist_ok=True)
        with pytest.raises(HanseError, match=r"scratch: .*a folder apart from the home"):
            SharedWorker(scratch=wrong).participant(DataSettings(train=tmp_path / "ward.csv"), home)
    (linked := tmp_path / "linked").symlink_to(home / "keys")
    with pytest.raises(HanseError, match=r"scratch: .*a folder apart from the home"):
        SharedWorker(scratch=linked).participant(DataSettings(train=tmp_path / "ward.csv"), home)


@pytest.mark.parametrize("what", ["train", "test", "code"])
async def test_nothing_that_the_worker_only_reads_lies_where_it_writes(tmp_path: Path, what: str) -> None:
    home, scratch, apart = (tmp_path / name for name in ("home", "scratch", "data"))
    for folder in (home, scratch, apart):
        folder.mkdir()
    lies = {name: (scratch if name == what else apart) / f"{name}.csv" for name in ("train", "test", "code")}
    data = DataSettings(train=lies["train"], test=lies["test"])
    with pytest.raises(HanseError, match=rf"scratch: .*without {what}\.csv"):
        SharedWorker(lies["code"], scratch=scratch).participant(data, home)
    SharedWorker(apart / "code.csv", scratch=scratch).participant(DataSettings(train=apart / "train.csv"), home)


def test_pages_of_files_are_no_memory_that_is_used(tmp_path: Path) -> None:
    size = 96 << 20
    tree = ProcessTree(os.getpid())
    before = tree.memory(1)
    with (tmp_path / "data").open("wb+") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        with mmap.mmap(file.fileno(), size) as mapping:
            pages = np.frombuffer(mapping, np.uint8)
            pages[:: mmap.PAGESIZE] = 1
            resident = psutil.Process().memory_info().rss
            assert tree.memory(1) - before < size // 2 < resident
            del pages
    taken = np.ones(size, np.uint8)
    assert tree.memory(1) - before > size // 2, taken.nbytes


_READS = """
import sys
from pathlib import Path
from hanse_datapod.data.room import Room
from hanse_datapod.data.load import read_site_data
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.server.training import _read
from hanse_schemas.schema import Column, TabularSchema
import pandas, pyarrow.parquet

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) >> 10

schema = TabularSchema(features=tuple(Column(name=f"f{at}") for at in range(500)), target="ill", classes=2)
path, before = Path(sys.argv[1]), held()
data = _read(lambda room: read_site_data(DataSettings(train=path), schema, None, room), Room(16 << 20, path.parent))
print(held() - before)
"""


def test_memory_that_was_used_to_read_is_free_for_the_task(tmp_path: Path, worker_nursery: Nursery) -> None:
    pq.write_table(block(0, 16384), path := tmp_path / "ward.parquet")
    done = worker_nursery.run(_READS, str(path))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 30  # MiB
