"""Data larger than memory are read piece by piece into files: to the same bits, checks and words as whole."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from hanse_datapod.data import images, stored_columns, stored_tables, tables
from hanse_datapod.data.load import SiteData, fingerprint, read_site_data, read_site_tables
from hanse_datapod.data.remarks import remarks
from hanse_datapod.data.room import Room
from hanse_datapod.data.settings import DataSettings, TableOptions, Tolerance
from hanse_datapod.data.tables import SiteTables
from hanse_datapod.worker.server.training import TrainingServer, _people
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.config import check_train
from hanse_learning.preparation.histograms import histograms
from hanse_learning.preparation.measured import fewest, measured
from hanse_learning.preparation.order import PrefixQuestion
from hanse_learning.site import mapped
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.mapped import ahead_of, is_mapped
from hanse_learning.site.training import batches, train
from hanse_privacy.works.people import sketch
from hanse_schemas.preparation import Preparation, PreparedCategory, PreparedNumber
from hanse_schemas.prepare import Prepare, completed
from hanse_schemas.schema import ArraySchema, Column, DataSchema, OpenSchema, TabularSchema
from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]  # each piece is awaited on the disk

NUMBERS = TabularSchema(
    features=(Column(name="age", minimum=0, maximum=120), Column(name="beds", dtype="integer"), Column(name="dose")),
    target="ill", classes=2, unit="patient", weight="counts",
)  # fmt: skip
MIXED = TabularSchema(
    features=(
        Column(name="age", minimum=0, maximum=120), Column(name="ward", kind="category", values=("a", "b")),
        Column(name="seen", kind="date"), Column(name="smokes", kind="boolean"), Column(name="note", kind="text"),
        Column(name="dose"),
    ),
    target="ill", classes=2, unit="patient", weight="counts",
)  # fmt: skip
PIXELS = ArraySchema(shape=(4, 5), classes=2, maximum=0.9, unit="patient")
PREPARATION = Preparation(
    columns=(
        PreparedNumber(kind="number", name="age", fill=50.0, centre=50.0, scale=3.0, indicator=True),
        PreparedCategory(
            kind="category", name="ward", form="onehot", values=("a", "b"), unknown="refuse", missing="own"
        ),
        PreparedNumber(kind="date", name="seen", fill=0.0), PreparedNumber(kind="boolean", name="smokes"),
        PreparedNumber(kind="number", name="dose", log=True),
    )
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of some rows, and blocks of a few."""
    for module in (stored_tables, images):
        monkeypatch.setattr(module, "PIECE_BYTES", 2000)
    for module in (mapped, stored_columns, tables):
        monkeypatch.setattr(module, "BLOCK_BYTES", 200)


def frame(rows: int = 97, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": draw.integers(0, 100, rows) + draw.integers(0, 4, rows) / 4, "beds": draw.integers(0, 9, rows),
            "dose": np.exp(draw.normal(size=rows) * 10), "ward": draw.choice(["a", "b", "c"], rows),
            "seen": [f"{day % 12 + 1}/{day % 28 + 1}/2024" for day in range(rows)],
            "smokes": draw.choice(["yes", "no"], rows), "note": [f"note ü{at % 7}" for at in range(rows)],
            "ill": draw.integers(0, 2, rows), "patient": draw.integers(100, 130, rows),
            "counts": draw.integers(1, 4, rows) / 2,
        }
    )  # fmt: skip


def written(table: pd.DataFrame, folder: Path, kind: str, **how: Any) -> Path:
    path = folder / f"ward.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False, **how)
    else:
        table.to_parquet(path, index=False, row_group_size=13)
    return path


def both(path: Path, schema: DataSchema, *, raw: bool = False, **further: Any) -> tuple[Any, Any]:
    """What a reading says, whole and in pieces: data, or all words of an error."""
    found = []
    for room in (None, Room(0, path.parent)):
        try:
            given = DataSettings(train=path, **further)
            if raw and isinstance(schema, TabularSchema):
                found.append(read_site_tables(given, schema, room))
            else:
                found.append(read_site_data(given, schema, None, room))  # type: ignore[arg-type]
        except HanseError as error:
            found.append((error.code, error.message, error.found, error.hint))
    return found[0], found[1]


def same(one: Any, other: Any) -> None:
    """Two readings of examples."""
    if not isinstance(one, SiteData):
        assert other == one
        return
    assert isinstance(other, SiteData), other
    assert is_mapped(other.train.x)
    assert not is_mapped(one.train.x)
    for part, stored in ((one.train, other.train), (one.test, other.test)):
        assert (part is None) == (stored is None)
        for array, again in zip(part.arrays, stored.arrays, strict=True) if part and stored else ():
            assert array.dtype == again.dtype
            np.testing.assert_array_equal(array, again)
        if part and stored:
            assert sketch(_people(part)) == sketch(_people(stored))
    assert fingerprint(one) == fingerprint(other)
    assert trained(one.train) == trained(other.train)


def trained(examples: Examples) -> list[Any]:
    """The values of a model after an epoch."""
    problem = Problem(examples.x.shape[1:], 2, "classification")
    torch.manual_seed(1)
    module = nn.Sequential(nn.Flatten(), nn.Linear(examples.x[0].size, 2))
    config = check_train({"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 1e-30}})
    whole = Examples(examples.x, (examples.y > 0).astype(np.int64))
    try:
        train(module, whole, config, problem, 3, lambda _done, _text: None)
    except HanseError as error:  # of numbers that no model takes
        return [error.message]
    return [value.tolist() for value in module.state_dict().values()]


def same_tables(one: Any, other: Any, schema: TabularSchema) -> None:
    """Two readings of raw tables, and what is told and made of them."""
    if not isinstance(one, SiteTables):
        assert other == one
        return
    assert isinstance(other, SiteTables), other
    rules = completed(Prepare(), schema).rules
    question = PrefixQuestion(depth=0, bits=4, prefixes={"age": (0,), "dose": (0,)})
    assert (one.set_aside, one.told) == (other.set_aside, other.told)
    assert remarks(one, schema) == remarks(other, schema)
    for part, stored in zip(one.parts, other.parts, strict=True):
        for name, cells in part.columns.items():
            np.testing.assert_array_equal(cells, stored.columns[name])
        told, again = (
            {name: array.tolist() for name, array in measured(rules, each.columns, 1, each.examples.y, 2).items()}
            for each in (part, stored)
        )
        assert told == again
        assert fewest(rules, part.columns) == fewest(rules, stored.columns)
        np.testing.assert_array_equal(histograms(question, part.columns), histograms(question, stored.columns))
    same_prepared(one, other)
    assert one.fingerprint_and_people() == other.fingerprint_and_people()
    assert one.fingerprint_and_people()[0] == one.fingerprint() == other.fingerprint()


def same_prepared(one: SiteTables, other: SiteTables) -> None:
    found = []
    for each in (one, other):
        try:
            found.append(SiteData(*each.prepared(PREPARATION)))
        except HanseError as error:
            found.append((error.message, error.found))  # type: ignore[arg-type]
    same(found[0], found[1])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("unit", [None, "patient"])
def test_numbers_are_the_same_to_the_bit(tmp_path: Path, kind: str, unit: str | None) -> None:
    schema = NUMBERS.model_copy(update={"unit": unit})
    one, other = both(written(frame(), tmp_path, kind), schema)
    assert len(one.train) + len(one.test) == 97
    same(one, other)
    assert remarks(one, schema) == remarks(other, schema)
    for kept in (ArraySchema(shape=(2,), classes=2), OpenSchema()):
        same(*both(written(frame()[["age", "dose", "ill"]], tmp_path, kind), kept))
    same(*both(tmp_path / f"ward.{kind}", OpenSchema(), test_fraction=0, test=tmp_path / f"ward.{kind}"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("unit", [None, "patient"])
@pytest.mark.parametrize("cells", [{}, {"ward": ["c"]}, {"age": [np.nan], "smokes": [None], "note": [None, " "]}])
def test_raw_tables_and_what_is_made_of_them_are_the_same_to_the_bit(
    tmp_path: Path, kind: str, unit: str | None, cells: dict[str, list[Any]]
) -> None:
    table = frame().replace({"ward": {"c": "a"}})
    for name, found in cells.items():
        table.loc[40 : 40 + len(found) - 1, name] = found
    schema = MIXED.model_copy(update={"unit": unit})
    one, other = both(written(table, tmp_path, kind), schema, raw=True)
    assert isinstance(other, SiteTables)
    same_tables(one, other, schema)


def test_forms_of_csv_are_seen_in_the_whole_file(tmp_path: Path) -> None:
    for decimal, separator in ((",", ";"), (".", ",")):
        same(*both(written(frame(), tmp_path, "csv", decimal=decimal, sep=separator), NUMBERS))
        same(
            *both(
                written(frame()[["age", "dose", "ill"]], tmp_path, "csv", decimal=decimal, sep=separator), OpenSchema()
            )
        )
    late = "a,b,ill\n" + "1,1,0\n" * 90 + "1.5,,1\n2,9007199254740993,1\n"
    (tmp_path / "ward.csv").write_text(late)
    same(*both(tmp_path / "ward.csv", OpenSchema()))
    (tmp_path / "ward.csv").write_text(late.replace("2,9007", "2,a"))
    same(*both(tmp_path / "ward.csv", OpenSchema()))


NUMBERS_BAD = [
    {"age": {80: 130.0, 3: 5.0}, "beds": {2: 0.5}}, {"beds": {90: 0.5}, "dose": {1: np.inf}}, {"ill": {50: 2}},
    {"counts": {96: -1.0}, "patient": {5: np.nan}}, {"age": {95: "old"}, "dose": {2: ""}}, {"dose": {9: 1e300}},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("bad", NUMBERS_BAD)
def test_the_same_first_fault_is_told_in_the_same_words(
    tmp_path: Path, kind: str, bad: dict[str, dict[int, Any]]
) -> None:
    table = frame().astype(dict.fromkeys(bad, object))
    for name, cells in bad.items():
        for row, cell in cells.items():
            table.loc[row, name] = cell
        if kind == "parquet":
            table[name] = table[name].astype(str if any(isinstance(cell, str) for cell in cells.values()) else float)
    path = written(table, tmp_path, kind)
    one, other = both(path, NUMBERS)
    assert isinstance(one, tuple)
    same(one, other)
    schema = MIXED.model_copy(update={"features": (*MIXED.features, NUMBERS.features[1])})
    # Of each fault, what is filled up is tried in one kind of file and what is dropped in the other one.
    filled = (NUMBERS_BAD.index(bad) + (kind == "csv")) % 2
    for share, then in ((0.0, "impute"), (0.05, "impute" if filled else "drop")):
        options = TableOptions(tolerance=Tolerance(cells=share, then=then, tell=True))
        raw = both(path, schema, raw=True, table=options)
        assert type(raw[0]) is type(raw[1])
        if isinstance(raw[0], SiteTables):
            assert raw[0].set_aside == raw[1].set_aside
            assert raw[0].fingerprint() == raw[1].fingerprint()
            same_prepared(*raw)
        else:
            assert raw[0] == raw[1]


@pytest.mark.parametrize(
    "text", ["age,beds\n1,2\n", "age,beds,dose,ill,patient,counts\n" + "1,1,1,0,1,1\n" * 60 + "1,1,1,0,1,1,7,8\n"]
)
def test_files_that_are_no_such_table_are_refused_in_the_same_words(tmp_path: Path, text: str) -> None:
    (tmp_path / "ward.csv").write_text(text)
    for raw, schema in ((False, NUMBERS), (True, MIXED)):
        one, other = both(tmp_path / "ward.csv", schema, raw=raw)
        assert isinstance(one, tuple)
        assert one == other
    (tmp_path / "ward.csv").write_bytes(b"age,ill\n" + b"1,0\n" * 300 + b"\xff,1\n")
    one, other = both(tmp_path / "ward.csv", OpenSchema())
    assert one == other
    assert "utf-8" in one[1]


TEXTS = st.sampled_from(["", "1", "-2", "2.5", "1e3", "x", "true", "False", "1,5", "1.234,5", "9007199254740993", "07"])


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from("01")), min_size=1, max_size=40),
    share=st.sampled_from([0, 0.5]),
)
def test_whatever_cells_a_csv_has_it_is_read_as_whole(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]], share: float
) -> None:
    schema = TabularSchema(
        features=(Column(name="age"), Column(name="ward", kind="category", values=("1",))), target="ill", classes=2
    )
    options = TableOptions(tolerance=Tolerance(cells=share))
    path = tmp_path_factory.mktemp("cells") / "ward.csv"
    path.write_text("age;ward;ill\n" + "".join(f"{';'.join(row)}\n" for row in rows))
    one, other = both(path, schema, raw=True, table=options)
    assert type(one) is type(other)
    if isinstance(one, SiteTables):
        assert (one.fingerprint(), one.set_aside) == (other.fingerprint(), other.set_aside)
    else:
        assert one == other
    same(*both(path, OpenSchema(), table=options))


def folder_of(tmp_path: Path, images: int = 30) -> Path:
    draw = np.random.default_rng(1)
    lines = ["file,patient"]
    for number in range(images):
        label = number % 2
        (tmp_path / "scans" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 200, (4, 5), np.uint8)).save(
            tmp_path / "scans" / str(label) / f"{number:02}.png"
        )
        lines.append(f"{label}/{number:02}.png,p{number % 9}")
    (tmp_path / "scans" / "units.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "scans"


def test_folders_of_images_are_the_same_to_the_bit_and_in_their_faults(tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    for schema in (PIXELS, OpenSchema(), PIXELS.model_copy(update={"unit": None})):
        same(*both(path, schema))
    manifest, bright = path / "units.csv", Image.fromarray(np.full((4, 5), 255, np.uint8))
    bright.save(path / "0" / "04.png")
    one, other = both(path, PIXELS)
    assert "image 3" in one[1]
    assert one == other
    manifest.write_text("\n".join(manifest.read_text().splitlines()[:-1]))
    one, other = both(path, PIXELS)
    assert "a line for each image" in one[1]
    assert one == other
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(path / "1" / "25.png")
    (path / "1" / "27.png").write_bytes(b"no image")
    one, other = both(path, PIXELS)
    assert "4 x 5 pixels" in one[1]
    assert one == other
    one, other = both(path, PIXELS, max_bytes=900)
    assert one[0] is ErrorCode.TOO_LARGE
    assert one == other


def test_what_fits_stays_in_memory(tmp_path: Path) -> None:
    data = read_site_data(DataSettings(train=written(frame(), tmp_path, "csv")), NUMBERS, None, Room(1 << 30, tmp_path))
    assert not is_mapped(data.train.x)
    assert data.nbytes > 0


def test_the_file_has_no_name_and_goes_with_the_data_and_others_may_not_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(frame(), tmp_path, "csv")
    modes, make = [], tempfile.TemporaryFile

    def noted(**how: Any) -> Any:
        file = make(**how)
        modes.append(os.fstat(file.fileno()))
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", noted)
    data = read_site_data(DataSettings(train=path), NUMBERS, None, Room(0, tmp_path))
    assert {(stat.S_IMODE(found.st_mode), found.st_nlink) for found in modes} == {(0o600, 0)}
    assert list(tmp_path.iterdir()) == [path]
    assert data.nbytes == sum(a.nbytes for part in (data.train, data.test) if part for a in part.arrays[1:])


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: _Usage())
    with pytest.raises(HanseError, match=r"more of the site's disk than is free.*HANSE_SCRATCH") as full:
        read_site_data(DataSettings(train=written(frame(), tmp_path, "csv")), NUMBERS, None, Room(0, tmp_path))
    assert full.value.code is ErrorCode.NO_SPACE
    assert full.value.found.startswith(f"{tmp_path}: 1164 bytes, 5 are free")


@pytest.mark.parametrize("prepares", [False, True])
def test_where_the_disk_has_no_room_either_what_fits_into_memory_is_read_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepares: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: _Usage())
    path = written(frame(), tmp_path, "csv")
    needs = 8 * path.stat().st_size

    def read_within(limit: int) -> int:
        server = TrainingServer(lambda _: None, lambda: None)
        server._room = Room.within(limit, tmp_path)
        settings = DataSettings(train=path)
        return (server._tables(settings, NUMBERS) if prepares else server._load(settings, NUMBERS, None)).nbytes

    assert read_within(2 * needs), "half of the limit, of which else a quarter is for data"
    with pytest.raises(HanseError, match="HANSE_SCRATCH") as full:
        read_within(needs)
    assert full.value.code is ErrorCode.NO_SPACE
    assert full.value.found.startswith(f"{tmp_path}: ")


class _Usage:
    free = 5


class Noting(mmap.mmap):
    """Notes which bytes the system is asked to read in advance."""

    def madvise(self, option: int, start: int = 0, length: int = 0, /) -> None:
        super().madvise(option, start, length)
        if option == mmap.MADV_WILLNEED:
            self.asked = [*getattr(self, "asked", ()), (start, start + length)]


def test_each_block_of_columns_is_read_while_the_block_before_it_is_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, at_once = 10_000, 4096
    monkeypatch.setattr(stored_columns, "BLOCK_BYTES", 2 * 8 * at_once)
    monkeypatch.setattr(mmap, "mmap", Noting)
    store = stored_columns.ColumnsStore(["a", "b"], [], rows, tmp_path)
    store.take({"a": np.arange(rows), "b": np.arange(rows)})
    columns = store.whole()
    mapping = mapped._mapping(columns._numbers)
    assert isinstance(mapping, Noting)
    for start, block in zip(range(0, rows, at_once), columns.blocks(), strict=True):
        assert block["b"].tolist() == list(range(rows))[start : start + at_once]
        for column in (0, rows):
            begins = column + min(start + at_once, rows - 1)
            ends = column + min(start + 2 * at_once, rows)
            assert any(begin <= 8 * begins and end >= 8 * ends for begin, end in mapping.asked), start


def test_the_rows_of_the_next_batch_are_read_while_a_batch_is_worked_on() -> None:
    array = np.frombuffer(mapping := Noting(-1, 100 * 1000), np.uint8).reshape(100, 1000)[7:]
    tell = ahead_of(array)
    assert tell is not None
    for row in range(len(array)):
        tell([row])
        start, end = mapping.asked[-1]
        assert start % mmap.PAGESIZE == 0
        assert start <= (7 + row) * 1000 < start + mmap.PAGESIZE
        assert end == (8 + row) * 1000
    told: list[list[int]] = []
    drawing, alone = (torch.Generator().manual_seed(3) for _ in range(2))
    worked: list[list[int]] = []
    for batch, expected in zip(batches(10, 4, 6, drawing, told.append), batches(10, 4, 6, alone), strict=True):
        assert batch.tolist() == expected.tolist()
        assert torch.equal(drawing.get_state(), alone.get_state())  # a checkpoint keeps it
        worked.append(batch.tolist())
        assert len(told) == (1, 2, 2, 3, 4, 4)[len(worked) - 1]
    assert told == [worked[at] for at in (1, 2, 4, 5)]  # two epochs of three batches; the first of each comes untold
    assert ahead_of(np.zeros((3, 4))) is None
