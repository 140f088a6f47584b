"""Test data that a site sets aside itself where a job hides an example, or a person: one more moves no other."""

from __future__ import annotations

import base64
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from hanse_datapod.data import images, stored_tables
from hanse_datapod.data.load import SiteData, fingerprint, read_site_data, read_site_tables
from hanse_datapod.data.names import said
from hanse_datapod.data.room import Room
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.data.sides import are_tested, of_names
from hanse_datapod.worker.server.training import TrainingServer
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.site.examples import Examples
from hanse_privacy.works.people_changed import changed, parts_of
from hanse_schemas.schema import ArraySchema, Column, LearnableSchema, OpenSchema, TabularSchema, unit_of

VISITS = TabularSchema(features=(Column(name="who"), Column(name="beds")), target="ill", classes=2, unit="patient")
ROWS = VISITS.model_copy(update={"unit": None})
NOTES = VISITS.model_copy(update={"features": (*VISITS.features, Column(name="ward", kind="category"))})
SCANS = ArraySchema(shape=(2, 2), classes=2, unit="patient")
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of a random name in it
FORMS = ("rows of a file", "a table", "a file in pieces", "a table in pieces", "parquet", "arrays")

names = st.one_of(st.integers(-5, 10**18), st.from_regex(r"[pP0-9][0-9._-]{0,5}", fullmatch=True))
people = st.lists(
    st.tuples(names, st.integers(1, 3)), min_size=6, max_size=24, unique_by=lambda one: said(one[0])
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stored_tables, images):
        monkeypatch.setattr(module, "PIECE_BYTES", 1500)


def spelled(name: object, visit: int) -> str:
    """A name as it is written at one of the visits."""
    if isinstance(name, int):
        return (f"{name}", f"{name:+04}", f"{name}.0")[visit]
    return (str(name), str(name).upper(), f" {name} ")[visit]


def keyed(path: Path | None, fraction: float = 0.5, **further: Any) -> DataSettings:
    return DataSettings(train=path, test_fraction=fraction, split="keyed", **further)


def frame(who: list[tuple[object, int]], numbers: Mapping[object, int]) -> pd.DataFrame:
    """So many visits of each, whose names are written in as many ways; the rows of each lie apart, and have a number of
    their own."""
    rows = [(spelled(name, visit), numbers[name], visit) for name, visits in who for visit in range(visits)]
    rows.sort(key=lambda row: row[2])
    return pd.DataFrame(
        {"patient": [row[0] for row in rows], "who": [row[1] for row in rows], "beds": [row[2] for row in rows],
         "ill": [row[1] % 2 for row in rows], "ward": ["a" if row[1] % 3 else "ü" for row in rows]}
    )  # fmt: skip


def require_units(found: Examples, who: NDArray[Any], schema: LearnableSchema) -> None:
    """Whoever has several rows is one, whom noise hides and whose rows are clipped together."""
    if unit_of(schema) is None:
        assert found.whose is None
        return
    assert found.whose is not None
    assert found.units == len(set(who.tolist())) == len(set(zip(found.whose.tolist(), who.tolist(), strict=True)))


def read(
    table: pd.DataFrame, folder: Path, form: str, schema: TabularSchema, **further: Any
) -> tuple[list[int], list[int]]:
    """(training, tests): of each side the numbers of whose the rows are."""
    path = folder / f"ward.{ {'parquet': 'parquet', 'arrays': 'npz'}.get(form, 'csv') }"
    if form == "parquet":
        table = table.astype({"patient": str})
        table.to_parquet(path, row_group_size=5)
    elif form == "arrays":
        x, whose = table[["who", "beds"]].to_numpy(np.float32), table["patient"].astype(str).to_numpy(str)
        np.savez(path, x=x, y=table["ill"].to_numpy(), patient=whose)
    else:
        table.to_csv(path, index=False)
    room = Room(0, folder) if "pieces" in form else None
    if "table" in form:
        tables = read_site_tables(keyed(path, **further), schema, room)
        assert tables.test is not None
        for part in (tables.train, tables.test):
            require_units(part.examples, np.asarray(part.columns["who"]), schema)
        train, test = ([int(number) for number in part.columns["who"]] for part in (tables.train, tables.test))
        return train, test
    known: LearnableSchema = schema if form != "arrays" else ArraySchema(shape=(2,), classes=2, unit=schema.unit)
    data = read_site_data(keyed(path, **further), known, None, room)
    assert data.test is not None
    for side in (data.train, data.test):
        require_units(side, side.x[:, 0], known)
    train, test = (part.x[:, 0].astype(int).tolist() for part in (data.train, data.test))
    return train, test


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20, deadline=None)
@given(who=people, at=st.integers(0, 100))
def test_one_person_more_or_fewer_moves_no_other(form: str, who: list[tuple[object, int]], at: int) -> None:
    gone = who[at % len(who)]
    rest = [one for one in who if one is not gone]
    assume(any(visits > 1 for _, visits in rest))
    numbers = {name: number for number, (name, _) in enumerate(who)}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        try:
            train, test = read(frame(who, numbers), Path(folder), form, VISITS)
            less_train, less_test = read(frame(rest, numbers), Path(folder), form, VISITS)
        except HanseError as error:
            assume("all fell on one side" not in error.message)
            raise
    assert not set(train) & set(test)
    assert sorted(number for number in train if number != numbers[gone[0]]) == sorted(less_train)
    assert sorted(number for number in test if number != numbers[gone[0]]) == sorted(less_test)


@pytest.mark.parametrize("form", FORMS[:5])
@settings(max_examples=20, deadline=None)
@given(who=st.lists(st.tuples(st.integers(0, 40), st.just(1)), min_size=8, max_size=24), at=st.integers(0, 100))
def test_where_nothing_says_whose_they_are_one_row_more_or_fewer_moves_no_other(
    form: str, who: list[tuple[object, int]], at: int
) -> None:
    """Some rows are equal: they are on one side."""
    numbers = {name: int(str(name)) for name, _ in who}
    gone = numbers[who[at % len(who)][0]]
    rest = [one for place, one in enumerate(who) if place != at % len(who)]
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        try:
            sides = read(frame(who, numbers), Path(folder), form, ROWS)
            less = read(frame(rest, numbers), Path(folder), form, ROWS)
        except HanseError as error:
            assume("all fell on one side" not in error.message)
            raise
    assert not set(sides[0]) & set(sides[1])
    for side, fewer in zip(sides, less, strict=True):
        if gone in side:
            side.remove(gone)
        assert sorted(side) == sorted(fewer)


def test_control_by_a_shuffle_one_of_a_thousand_moves_others(tmp_path: Path) -> None:
    x = np.arange(1001, dtype=np.float32).reshape(-1, 1)
    moved = {}
    for split in ("shuffled", "keyed"):
        tested = []
        for rows in (1000, 1001):
            np.savez(tmp_path / "ward.npz", x=x[:rows], y=np.zeros(rows, int))
            data = read_site_data(DataSettings(train=tmp_path / "ward.npz", split=split), OpenSchema())
            assert data.test is not None
            tested.append(set(data.test.x[:, 0].tolist()) - {1000.0})
        moved[split] = len(tested[0] ^ tested[1])
    assert moved == {"shuffled": 44, "keyed": 0}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(-(2**70), 2**70), fraction=st.floats(0.05, 0.95))
def test_about_the_fraction_of_all_is_set_aside(seed: int, fraction: float) -> None:
    """Six deviations: of all draws of this test one in ten million is further away."""
    count = 4000
    tested = are_tested(of_names(range(count), seed=seed), fraction)
    assert abs(int(tested.sum()) - count * fraction) <= 6 * math.sqrt(count * fraction * (1 - fraction))


@pytest.mark.parametrize(
    "alike",
    [(7, 7.0, "7", " 7 ", "07", "7.0", np.int64(7), np.float32(7), np.str_("7")), ("Mrs B", "mrs b", "MRS B "),
     (True, "True", "TRUE"), (123456789012345678, "123456789012345678.0", "+0123456789012345678"),
     (1000, "1e3", "1E+03", 1e3, "1000.00"), (-0.5, "-.5", "-5e-1"), (0, "-0", "0.0", "0e9", -0.0)],
)  # fmt: skip
def test_a_name_is_the_same_however_the_rest_of_its_column_has_it_read(alike: tuple[object, ...]) -> None:
    assert len({of_names([name], seed=0)[0] for name in alike}) == 1
    assert len({said(name) for name in alike}) == 1
    assert {said(said(name)) for name in alike} == {said(alike[0])}


def test_names_that_differ_in_one_sign_are_of_two_people_however_long_they_are() -> None:
    apart = (
        7,
        -7,
        "8",
        "7a",
        "nan",
        "",
        ".",
        "e5",
        "1_0",
        "10",
        2**53,
        2**53 + 1,
        "9" * 40,
        "9" * 39 + "8",
        "1e999999999",
    )
    assert len({said(name) for name in apart}) == len(apart)
    assert len(set(of_names(apart, seed=0))) == len(apart)


def test_a_column_of_names_that_becomes_text_by_one_more_moves_nobody(tmp_path: Path) -> None:
    who: list[tuple[object, int]] = [(f"{at:03}", 2) for at in range(40)]
    numbers = {name: at for at, (name, _) in enumerate(who)} | {"A1": 99}
    train, test = read(frame(who, numbers), tmp_path, "rows of a file", VISITS)
    more = read(frame([*who, ("A1", 2)], numbers), tmp_path, "rows of a file", VISITS)
    assert ({*train}, {*test}) == tuple({*side} - {99} for side in more)


@pytest.mark.parametrize("more", ["A1,99,1,0\n" * 2, '5,99,"0,5",0\n' * 2])
@pytest.mark.parametrize("pieces", [False, True])
def test_one_more_of_another_kind_makes_no_other_one_two(tmp_path: Path, pieces: bool, more: str) -> None:
    """A name that is no number, and a number with a decimal comma, for which all columns are read anew as texts."""
    rows = "".join(f"{name},{at},1,{at % 2}\n" for at in range(100, 150) for name in (f"{at}", f"0{at}"))
    room = Room(0, tmp_path) if pieces else None
    sides = []
    for further in ("", more):
        (tmp_path / "ward.csv").write_text(f"patient,who,beds,ill\n{rows}{further}")
        data = read_site_data(keyed(tmp_path / "ward.csv", 0.2), VISITS, None, room)
        raw = read_site_tables(keyed(tmp_path / "ward.csv", 0.2), VISITS, room)
        assert data.test is not None
        assert (raw.train.examples.units, data.train.units + data.test.units) == (data.train.units, 50 + bool(further))
        sides.append([{*part.x[:, 0].tolist()} - {99.0} for part in (data.train, data.test)])
    assert sides[0] == sides[1]


def test_a_target_that_makes_all_of_them_numbers_with_fractions_moves_nobody(tmp_path: Path) -> None:
    rows = "".join(f"{at},{at % 2}\n" for at in range(60))
    sides = []
    for more in ("", "99,0.5\n"):
        (tmp_path / "ward.csv").write_text(f"age,y\n{rows}{more}")
        data = read_site_data(keyed(tmp_path / "ward.csv"), OpenSchema())
        assert data.test is not None
        sides.append(tuple({*part.x[:, 0].tolist()} - {99.0} for part in (data.train, data.test)))
    assert sides[0] == sides[1]


@pytest.mark.parametrize(("form", "schema"), [("csv", VISITS), ("csv", ROWS), ("parquet", VISITS), ("parquet", ROWS)])
def test_the_sides_are_the_same_in_memory_in_pieces_and_before_a_preparation(
    tmp_path: Path, form: str, schema: TabularSchema
) -> None:
    table = frame([(f"p{at}", 1 + at % 3) for at in range(50)], {f"p{at}": at for at in range(50)})
    path = tmp_path / f"ward.{form}"
    if form == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, row_group_size=7)
    plain = [read_site_data(keyed(path), schema, None, room) for room in (None, Room(0, tmp_path))]
    assert fingerprint(plain[0]) == fingerprint(plain[1])
    raw = [read_site_tables(keyed(path), schema, room) for room in (None, Room(0, tmp_path))]
    assert raw[0].fingerprint() == raw[1].fingerprint()
    assert raw[0].test is not None
    assert plain[0].test is not None
    assert raw[0].test.columns["who"].tolist() == plain[0].test.x[:, 0].tolist()
    texts = [read_site_tables(keyed(path), NOTES.model_copy(update={"unit": schema.unit}), room)
             for room in (None, Room(0, tmp_path))]  # fmt: skip
    assert texts[0].fingerprint() == texts[1].fingerprint()


def test_images_are_set_aside_by_whose_they_are_or_by_their_pixels(tmp_path: Path) -> None:
    """Not by their names, for who takes one away may number the others anew."""

    def written(shades: list[int], manifest: bool) -> Path:
        folder = tmp_path / f"{len(shades)}-{manifest}"
        (folder / "1").mkdir(parents=True)
        for at, shade in enumerate(shades):
            Image.new("L", (2, 2), color=shade).save(folder / "1" / f"{at:03}.png")
        if manifest:
            lines = [f"1/{at:03}.png,p{shade // 2}\n" for at, shade in enumerate(shades)]
            (folder / "units.csv").write_text("file,patient\n" + "".join(lines))
        return folder

    for manifest, gone in ((True, {20, 21}), (False, {20})):
        schema = SCANS if manifest else SCANS.model_copy(update={"unit": None})
        sides = []
        for shades in (list(range(80)), [shade for shade in range(80) if shade not in gone]):
            folder = written(shades, manifest)
            both = [read_site_data(keyed(folder), schema, None, room) for room in (None, Room(0, tmp_path))]
            assert fingerprint(both[0]) == fingerprint(both[1])
            parts = [part for part in (both[0].train, both[0].test) if part is not None]
            sides.append([{round(255 * shade) for shade in part.x[:, 0, 0].tolist()} - gone for part in parts])
        assert sides[0] == sides[1]


def test_arrays_of_a_sites_own_load_are_set_aside_as_those_of_a_file(tmp_path: Path) -> None:
    x, whose = np.arange(60, dtype=np.float32).reshape(-1, 1), np.array([f"p{at // 2}" for at in range(60)])
    np.savez(tmp_path / "ward.npz", x=x, y=np.zeros(60, int), patient=whose)
    (tmp_path / "mine.py").write_text(
        f"import numpy as np\ndef load():\n    found = np.load({str(tmp_path / 'ward.npz')!r})\n"
        "    return {'train': (found['x'], found['y'], found['patient'])}\n"
    )
    schema = ArraySchema(shape=(1,), classes=2, unit="patient")
    own = read_site_data(keyed(None, kind="code"), schema, tmp_path / "mine.py")
    assert fingerprint(own) == fingerprint(read_site_data(keyed(tmp_path / "ward.npz"), schema))
    assert own.train.draws is not None
    assert own.train.units + (0 if own.test is None else own.test.units) == 30


def test_weights_belong_to_a_row_and_survival_times_too(tmp_path: Path) -> None:
    schema = ROWS.model_copy(update={"weight": "counts", "task": "regression", "classes": None})
    lines = [f"{at % 3},0,{at % 5 + 0.5},{at % 7}\n" for at in range(105)]
    (tmp_path / "ward.csv").write_text("who,beds,ill,counts\n" + "".join(lines))
    for data in (
        read_site_data(keyed(tmp_path / "ward.csv"), schema),
        read_site_data(keyed(tmp_path / "ward.csv"), schema, None, Room(0, tmp_path)),
    ):
        assert data.test is not None
        rows = [
            set(zip(part.x[:, 0].tolist(), part.y.tolist(), part.weights.tolist(), strict=True))
            for part in (data.train, data.test)
            if part.weights is not None
        ]
        assert len(rows) == 2
        assert not rows[0] & rows[1]


def test_a_side_with_nothing_is_refused_in_words_that_name_nobody(tmp_path: Path) -> None:
    for table in ("patient,who,beds,ill\nmrs-b,1,1,0\nmrs-b,1,1,0\n", "patient,who,beds,ill\n" + "mrs-b,1,1,0\n" * 50):
        (tmp_path / "ward.csv").write_text(table)
        for schema in (VISITS, ROWS):
            for reads in (read_site_data, read_site_tables):
                with pytest.raises(HanseError, match="all fell on one side") as caught:
                    reads(keyed(tmp_path / "ward.csv"), schema)
                assert caught.value.code is ErrorCode.SCHEMA_MISMATCH
                assert "mrs-b" not in str(caught.value)
                assert "--test" in caught.value.hint


def test_a_file_of_test_data_and_a_fraction_of_0_leave_all_in_training(tmp_path: Path) -> None:
    path = tmp_path / "ward.npz"
    np.savez(path, x=np.zeros((6, 2)), y=np.zeros(6, int))
    assert len(read_site_data(keyed(path, 0.0), OpenSchema()).train) == 6
    assert len(read_site_data(keyed(path, test=path), OpenSchema()).train) == 6


def server_and_body(folder: Path, table: pd.DataFrame, *, pieces: bool) -> tuple[TrainingServer, dict[str, Any]]:
    table.to_csv(folder / "ward.csv", index=False)
    body = {
        "operation": "check", "schema": VISITS.model_dump(mode="json"), "code": None, "device": "cpu",
        "scratch": str(folder), "memory_limit": 64 if pieces else None,
    }  # fmt: skip
    return TrainingServer(lambda _frame: None, dict), body


@pytest.mark.parametrize("pieces", [False, True])
def test_a_worker_keeps_data_parted_in_both_ways_but_their_files_once(tmp_path: Path, pieces: bool) -> None:
    table = frame([(f"p{at}", 2) for at in range(80)], {f"p{at}": at for at in range(80)})
    server, body = server_and_body(tmp_path, table, pieces=pieces)
    told = {}
    for split in ("shuffled", "keyed", "shuffled"):
        data = DataSettings(train=tmp_path / "ward.csv", split=split).model_dump(mode="json")
        told[split] = server.do(body | {"data": data})
        assert told[split]["parted"]
    assert len(server._data) == (1 if pieces else 2)
    assert told["shuffled"]["fingerprint"] != told["keyed"]["fingerprint"]
    assert told["shuffled"]["units"] == 64
    assert 0 < told["keyed"]["units"] < 80
    assert "split" not in DataSettings(train=tmp_path / "ward.csv").model_dump(mode="json")


def test_who_is_on_another_side_counts_as_changed(tmp_path: Path) -> None:
    """The memory of masked works lets no sum of one work be told apart from another by few: not by this either."""
    all_of_them, fewer = ([(f"p{at}", 2) for at in range(count)] for count in (100, 99))
    states = []
    for who, split in ((all_of_them, "shuffled"), (all_of_them, "keyed"), (fewer, "keyed")):
        table = frame(list(who), {f"p{at}": at for at in range(100)})
        server, body = server_and_body(tmp_path, table, pieces=False)
        data = DataSettings(train=tmp_path / "ward.csv", split=split)  # type: ignore[arg-type]
        plain = read_site_data(data, VISITS)
        server.do(body | {"data": data.model_dump(mode="json")})
        whole, *parts = parts_of(base64.b64decode(server._state().people))
        assert len(parts) == 2
        states.append((whole, plain))
    (shuffled, _), (by_key, data), (less, _) = states
    assert isinstance(data, SiteData)
    assert data.test is not None
    assert changed(shuffled, by_key) == data.test.units
    assert changed(by_key, less) == 1
