"""Reads the site's data whole, splits off test data, and holds both against the project's schema."""

from __future__ import annotations

import hashlib
import reprlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.check import Raw, checked, mismatch
from hanse_datapod.data.room import Room
from hanse_datapod.data.settings import DataKind, DataSettings
from hanse_datapod.data.sides import are_tested, draw_of, drawn, of_cells, of_examples
from hanse_datapod.data.tables import SiteTable, SiteTables
from hanse_fabric.errors import ErrorCode, HanseError, invalid, unfit
from hanse_learning.site.examples import Examples
from hanse_learning.site.mapped import in_blocks, in_memory, is_mapped, parted
from hanse_schemas.schema import LearnableSchema, TabularSchema, for_tests, unit_of


@dataclass(frozen=True, slots=True)
class SiteData:
    """What a site trains and tests on; `test` is None where it has none.

    Attributes:
        parted: whether the test data are a part of the training data, set aside here.
        keyed: whether each example, or whoever has several, was set aside by a hash of its own.
    """

    train: Examples
    test: Examples | None
    parted: bool = False
    keyed: bool = False

    @property
    def nbytes(self) -> int:
        """In memory."""
        return sum(in_memory(array) for part in (self.train, self.test) if part is not None for array in part.arrays)


def read_site_data(
    settings: DataSettings, schema: LearnableSchema, code: Path | None = None, room: Room | None = None
) -> SiteData:
    """Read, check, split. Tables and images for which there is no `room` are read piece by piece into files.

    Raises:
        HanseError: NOT_FOUND, TOO_LARGE, INVALID_INPUT or SCHEMA_MISMATCH, naming file, column and row (`unfit`);
            SCHEMA_MISMATCH where keyed hashes set all examples, or none, aside.
    """
    if settings.kind == "code":
        train, test = _by_code(code, schema, settings)
    else:
        if settings.train is None:
            raise invalid("data", None, "the path of a data file")
        train = read_examples(settings.train, settings, schema, room)
        test = read_test_examples(settings.test, settings, schema, room) if settings.test is not None else None
    if test is None and settings.test_fraction > 0:
        return _split(train, settings, room)
    return SiteData(train, test)


def read_site_tables(settings: DataSettings, schema: TabularSchema, room: Room | None = None) -> SiteTables:
    """Read the raw tables, and split them as `read_site_data` splits.

    Raises:
        HanseError: as `read_site_data`; SCHEMA_MISMATCH for data that are no table.
    """
    if settings.train is None or settings.kind == "code":
        raise mismatch("data: a preparation is of CSV or Parquet files, this site has none")
    train = read_site_table(settings.train, settings, schema, room)
    test = None if settings.test is None else read_site_table(settings.test, settings, schema.for_tests, room)
    set_aside = train.set_aside + (0 if test is None else test.set_aside)
    told = set_aside if settings.table.tolerance.tell else 0
    if test is None and settings.test_fraction > 0:
        known = train.examples
        drawn = partial(of_cells, train.columns, known.y, known.weights, seed=settings.split_seed)
        for_train, for_test = _parted(known, settings, drawn)
        if len(for_test):
            train, test = train.parted(for_train, for_test)
    return SiteTables(train, test, set_aside, told, keyed=settings.keyed)


def read_site_table(
    path: Path, settings: DataSettings, schema: TabularSchema, room: Room | None = None
) -> SiteTable:  # fmt: skip
    """Read one CSV or Parquet file as it is.

    Raises:
        HanseError: as `read_site_tables`.
    """
    with _readable(path):
        kind = _kind(path, settings)
        if kind not in ("csv", "parquet"):
            raise mismatch(f"data file {path.name}: a preparation is of CSV or Parquet files, it is {kind}")
        from hanse_datapod.data.tabular import read_table

        draw = draw_of(settings, schema)
        if room is not None:
            from hanse_datapod.data.stored_tables import pieces_of, read_stored_table

            if (pieces := pieces_of(path, kind, schema, settings.table, room)) is not None:
                return read_stored_table(pieces, schema, settings.table, room, draw)
        return read_table(path, kind, schema, settings.table, draw)


def read_test_examples(
    path: Path, settings: DataSettings, schema: LearnableSchema, room: Room | None = None
) -> Examples:
    """Read and check a file or folder of test data, for which neither unit nor weight matters."""
    return read_examples(path, settings, for_tests(schema), room)


def read_examples(
    path: Path, settings: DataSettings, schema: LearnableSchema, room: Room | None = None
) -> Examples:  # fmt: skip
    """Read and check one file or folder.

    Raises:
        HanseError: as `read_site_data`.
    """
    with _readable(path):
        kind = _kind(path, settings)
        if room is not None and (found := _stored(path, kind, schema, settings, room)) is not None:
            return found
        return _drawn(_by_kind(path, kind, schema, settings), schema, settings)


def _stored(
    path: Path, kind: DataKind, schema: LearnableSchema, settings: DataSettings, room: Room
) -> Examples | None:  # fmt: skip
    """The examples in a file; None where there is room for them in memory, or where they cannot be read in pieces."""
    if kind == "images":
        from hanse_datapod.data.images import read_stored_images

        return read_stored_images(path, schema, settings.max_bytes, room, draw_of(settings, schema))
    if kind not in ("csv", "parquet"):
        return None
    from hanse_datapod.data.stored_tables import pieces_of, read_stored

    pieces = pieces_of(path, kind, schema, settings.table, room)
    return None if pieces is None else read_stored(pieces, schema, room, draw_of(settings, schema))


def _drawn(raw: Raw, schema: LearnableSchema, settings: DataSettings) -> Examples:
    """The examples, checked; with the numbers by which they are set aside, where that goes by whose they are."""
    examples, draw = checked(raw, schema), draw_of(settings, schema)
    if raw.names is not None:
        return drawn(examples, raw.names, draw)
    return examples if draw is None or raw.whose is None else replace(examples, draws=draw(raw.whose))


def _kind(path: Path, settings: DataSettings) -> DataKind:
    """Of a file that is there, and not too large."""
    if not path.exists():
        raise HanseError(
            ErrorCode.NOT_FOUND, f"data file {path.name}: there is no such file",
            hint="check the path, and that the volume is mounted",
        )  # fmt: skip
    kind = settings.kind_of(path)
    if path.is_file() and path.stat().st_size > settings.max_bytes:
        raise HanseError(
            ErrorCode.TOO_LARGE, f"data file {path.name}: more than the {settings.max_bytes} bytes that are allowed"
        )
    return kind


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """What goes wrong with a file says where it lies to who has it, and to nobody else: folders may be named after
    people."""
    try:
        yield
    except OSError as error:
        told = f"data file {path.name}: it cannot be read"
        raise unfit(told, f"{error}, in {path}", code=ErrorCode.INVALID_INPUT) from None
    except HanseError as error:
        error.found = f"{error.found}, in {path}" if error.found else str(path)
        raise


def _by_kind(path: Path, kind: DataKind, schema: LearnableSchema, settings: DataSettings) -> Raw:
    # pandas, pyarrow and pillow take a second to load, so only who needs them waits for them.
    match kind:
        case "npz":
            return read_npz(path, settings.max_bytes, unit_of(schema))
        case "images":
            from hanse_datapod.data.images import read_images

            return read_images(path, schema, settings.max_bytes)
        case "csv":
            from hanse_datapod.data.tabular import read_csv

            return read_csv(path, schema, settings.table)
        case "parquet":
            from hanse_datapod.data.tabular import read_parquet

            return read_parquet(path, schema)
        case "plink" | "code" | "auto":
            raise mismatch(f"data file {path.name}: models are trained on tables, NPZ files or images, it is {kind}")
        case unknown:
            assert_never(unknown)


def version_of(settings: DataSettings, code: Path | None) -> str:
    """Changes when a file is written anew; for folders of images when a class folder is."""
    found = []
    for path in (settings.train, settings.test, code if settings.kind == "code" else None):
        for part in [] if path is None else [path, *(sorted(path.iterdir()) if path.is_dir() else [])]:
            if part.exists():
                stat = part.stat()
                found.append(f"{part.name}:{stat.st_mtime_ns}:{stat.st_size}")
    return "|".join(found)


def fingerprint(data: SiteData) -> str:
    """SHA-256 over all arrays with their shapes and dtypes."""
    digest = hashlib.sha256()
    for part in (data.train, data.test):
        for array in () if part is None else part.arrays:
            digest.update(f"{array.dtype}{array.shape}".encode())
            for block in in_blocks(array):
                digest.update(np.ascontiguousarray(array[block]).data)
    return digest.hexdigest()


def _split(data: Examples, settings: DataSettings, room: Room | None) -> SiteData:
    drawn = partial(of_examples, data.x, data.y, data.weights, seed=settings.split_seed)
    for_train, for_test = _parted(data, settings, drawn)
    if room is None or not is_mapped(data.x):
        train, test = data.take(for_train), data.take(for_test) if len(for_test) else None
        return SiteData(train, test, parted=test is not None, keyed=settings.keyed)
    if not len(for_test):
        return SiteData(data, None)
    beside = replace(data, x=np.empty((len(data), 0), np.float32))
    both = zip(parted(data.x, for_train, for_test, room.folder), (for_train, for_test), strict=True)
    train, test = (replace(beside.take(rows), x=x) for x, rows in both)
    return SiteData(train, test, parted=True, keyed=settings.keyed)


def _parted(
    data: Examples, settings: DataSettings, drawn: Callable[[], NDArray[np.uint64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """(rows for training, rows for tests). Units are not divided: who has a row among the test data has none in
    training. By a shuffle, a given share of all units is tested, so with one more of them others are.

    Args:
        drawn: gives the examples' own numbers, where nothing says whose they are.
    """
    if settings.keyed:
        if data.whose is not None and data.draws is None:
            raise ValueError("units without numbers: each row would be set aside by itself")
        aside = are_tested(drawn() if data.draws is None else data.draws, settings.test_fraction)
        return np.flatnonzero(~aside), np.flatnonzero(aside)
    tested = np.zeros(data.units, bool)
    order = np.random.default_rng(settings.split_seed).permutation(len(tested))
    tested[order[: int(settings.test_fraction * len(tested))]] = True
    for_test = tested if data.whose is None else tested[data.whose]
    return np.flatnonzero(~for_test), np.flatnonzero(for_test)


def _by_code(
    code: Path | None, schema: LearnableSchema, settings: DataSettings
) -> tuple[Examples, Examples | None]:  # fmt: skip
    from hanse_datapod.worker.work.site_code import load_code

    file = load_code(code)
    loaded = file.load()
    if not isinstance(loaded, Mapping) or "train" not in loaded or not set(loaded) <= {"train", "test"}:
        raise _loaded(file.path, "", "a mapping with `train` and, if you like, `test`: (x, y) pairs", loaded)
    if loaded["train"] is None:
        raise _loaded(file.path, "['train']", "a pair (x, y) of arrays", None)
    train = _drawn(_returned(file.path, "train", loaded["train"], schema), schema, settings)
    if loaded.get("test") is None:
        return train, None
    # Whose the test data are does not matter.
    return train, checked(_returned(file.path, "test", loaded["test"], schema), for_tests(schema))


def _returned(path: Path, name: str, given: object, schema: LearnableSchema) -> Raw:
    """A part of what the site's own code has read: (x, y), and whose each example is where the schema has a unit."""
    unit = unit_of(schema)
    expected = "a pair (x, y) of arrays" + ("" if unit is None else f", or (x, y, {unit})")
    if not (isinstance(given, tuple) and len(given) in ((2,) if unit is None else (2, 3))):
        raise _loaded(path, f"[{name!r}]", expected, given)
    arrays = [np.asarray(array) for array in given]
    whose = arrays[2] if len(arrays) == 3 else None
    if whose is not None and (whose.dtype.kind not in "iuUSf" or (whose.dtype.kind == "f" and np.isnan(whose).any())):
        raise _loaded(path, f"[{name!r}][2]", f"{unit} as numbers or texts", whose.dtype)
    return Raw(f"{path.name}: load()[{name!r}]", arrays[0], arrays[1], "example", whose)


def read_npz(path: Path, max_bytes: int, unit: str | None = None) -> Raw:
    """Arrays `x` and `y`, and the one that says whose each example is.

    Raises:
        HanseError: INVALID_INPUT where it is no such file; TOO_LARGE where it unpacks to more than `max_bytes`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(item.file_size for item in archive.infolist())
        if unpacked > max_bytes:
            raise HanseError(
                ErrorCode.TOO_LARGE,
                f"data file {path.name}: unpacks to more than the {max_bytes} bytes that are allowed",
            )
        with np.load(path, allow_pickle=False) as arrays:
            missing = {"x", "y"} - set(arrays.files)
            if missing:
                raise unfit(
                    f"data file {path.name}: array {min(missing)} is missing",
                    f"it has {', '.join(arrays.files) or 'none'}",
                    code=ErrorCode.INVALID_INPUT, hint="write it with numpy.savez(path, x=..., y=...)",
                )  # fmt: skip
            whose = arrays[unit] if unit in arrays.files else None
            return Raw(f"data file {path.name}", arrays["x"], arrays["y"], "example", whose)
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
        raise unfit(
            f"data file {path.name}: it is not an NPZ file of plain arrays", str(error), code=ErrorCode.INVALID_INPUT,
            hint="write it with numpy.savez(path, x=..., y=...), without object arrays",
        ) from None  # fmt: skip


def _loaded(path: Path, part: str, expected: str, found: object) -> HanseError:
    return unfit(f"{path.name}: load(){part}: {expected} was expected", _in_a_line(found), code=ErrorCode.INVALID_INPUT)


def _in_a_line(found: object) -> str:
    """What somebody's code gave, in a line: not its arrays, which fill many."""
    match found:
        case None | np.dtype():
            return str(found)
        case Mapping():
            return f"a mapping with {', '.join(map(repr, list(found)[:10])) or 'nothing'}"
        case tuple() | list():
            return f"a {type(found).__name__} of {len(found)}: {', '.join(map(_in_a_line, found[:3]))}"
        case np.ndarray():
            return f"an array of shape {list(found.shape)}"
        case str() | bytes() | int() | float():
            return reprlib.repr(found)
        case _:
            return f"a {type(found).__name__}"
