"""CSV files as hospitals have them: other separators, decimal commas, byte order marks, dates in their own form. What
may be read in two ways is refused in words that hold no cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from hanse_datapod.data.load import read_site_data, read_site_tables
from hanse_datapod.data.settings import DataSettings, TableOptions
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import Column, OpenSchema, TabularSchema

SCHEMA = TabularSchema(
    features=(
        Column(name="age", minimum=0, maximum=120), Column(name="lactate"),
        Column(name="ward", kind="category", values=("a, b", "c")), Column(name="seen", kind="date"),
    ),
    target="ill", classes=2,
)  # fmt: skip
PLAIN = 'age,lactate,ward,seen,ill\n40,1.5,"a, b",2026-01-13,0\n,2.25,c,2026-02-01,1\n60.5,,,,0\n'
NUMBERS = TabularSchema(features=(Column(name="age"), Column(name="lactate")), target="ill", classes=2)


def settings(folder: Path, text: str | bytes, **options: Any) -> DataSettings:
    path = folder / "ward.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return DataSettings(train=path, test_fraction=0, table=TableOptions(**options))


def digest(folder: Path, text: str | bytes, schema: TabularSchema = SCHEMA, **options: Any) -> str:
    return read_site_tables(settings(folder, text, **options), schema).fingerprint()


SEMICOLONS = "age;lactate;ward;seen;ill\n40;1,5;a, b;13.01.2026;0\n;2,25;c;1.2.2026;1\n60,5;;;;0\n"


@pytest.mark.parametrize(
    "text",
    [
        SEMICOLONS,
        SEMICOLONS.replace("1,5", "1.5").replace("2,25", "2.25").replace("60,5", "60.5"),
        SEMICOLONS.replace(";", "\t"),
        b"\xef\xbb\xbf" + SEMICOLONS.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("2026-01-13", "1/13/2026").replace("2026-02-01", "2/1/2026"),
        PLAIN.replace("2026-01-13", "13/01/2026 00:00").replace("2026-02-01", "1/2/2026"),
        PLAIN.replace("1.5", '"1,5"').replace("2.25", '"2,25"').replace("60.5", '"60,5"'),
    ],
    ids=["semicolons", "points", "tabs", "mark", "plain mark", "CRLF", "month first", "day first", "quoted commas"],
)
def test_the_same_table_is_read_from_the_files_of_programs_of_other_countries(
    tmp_path: Path, text: str | bytes
) -> None:
    assert digest(tmp_path, text) == digest(tmp_path, PLAIN)


def test_a_header_that_two_separators_fit_is_refused_until_the_site_says_which(tmp_path: Path) -> None:
    text = "id;age,lactate;code\n1;2;0\n"
    for read in (lambda: digest(tmp_path, text), lambda: read_site_data(settings(tmp_path, text), OpenSchema())):
        with pytest.raises(HanseError, match="has commas and semicolons: it is not clear which") as raised:
            read()
        assert raised.value.code is ErrorCode.INVALID_INPUT
    with pytest.raises(HanseError, match="column age is missing"):
        digest(tmp_path, text, separator=";")


def test_commas_that_may_stand_between_thousands_are_refused_until_the_site_says_what_they_are(
    tmp_path: Path,
) -> None:
    text = "age;lactate;ill\n40;1,234;0\n50;2,345;1\n"
    with pytest.raises(HanseError, match="it is not clear whether they are decimal commas") as raised:
        digest(tmp_path, text, NUMBERS)
    assert "1,234" not in str(raised.value)
    told = read_site_tables(settings(tmp_path, text, decimal=","), NUMBERS)
    assert told.train.columns["lactate"].tolist() == [1.234, 2.345]
    clear = read_site_tables(settings(tmp_path, text.replace("2,345", "0,345")), NUMBERS)
    assert clear.train.columns["lactate"].tolist() == [1.234, 0.345]


def test_a_point_among_decimal_commas_is_refused_for_it_may_mark_thousands(tmp_path: Path) -> None:
    text = "age;lactate;ill\n40;1,5;0\n1.050;2,5;1\n"
    with pytest.raises(HanseError, match=r"column age, line 3: a finite number below 1e20 was expected") as raised:
        digest(tmp_path, text, NUMBERS)
    assert "1.050" in raised.value.whole
    assert "1.050" not in str(raised.value)


@pytest.mark.parametrize(
    "days", [("1/2/2026", "3/4/2026"), ("1/13/2026", "13/1/2026"), ("1/2/26", "1/2/26"), ("2/30/2026", "1/31/2026")]
)
def test_dates_of_which_nothing_shows_the_month_are_refused(tmp_path: Path, days: tuple[str, str]) -> None:
    text = PLAIN.replace("2026-01-13", days[0]).replace("2026-02-01", days[1])
    with pytest.raises(HanseError, match=r"column seen, line 2: .* the schema must say formats") as raised:
        digest(tmp_path, text)
    assert days[0] not in str(raised.value)


def test_declared_formats_are_the_only_ones(tmp_path: Path) -> None:
    seen = Column(name="seen", kind="date", formats=("%d/%m/%Y",))
    schema = SCHEMA.model_copy(update={"features": (*SCHEMA.features[:3], seen)})
    text = PLAIN.replace("2026-01-13", "3/2/2026").replace("2026-02-01", "1/2/2026")
    days = read_site_tables(settings(tmp_path, text), schema).train.columns["seen"]
    assert days[:2].tolist() == [20487, 20485]
    with pytest.raises(HanseError, match="column seen, line 3: a date %d/%m/%Y was expected"):
        digest(tmp_path, text.replace("1/2/2026", "2026-02-01"), schema)
    with pytest.raises(ValueError, match="one was expected"):
        Column(name="seen", kind="date", formats=("%d/%m/%Y", "%m/%d/%Y"))


HIP = TabularSchema(features=(*SCHEMA.features[:2], Column(name="Hüfte", kind="category", values=("a, b", "ß"))),
                    target="ill", classes=2)  # fmt: skip
OF_HIPS = SEMICOLONS.replace("ward", "Hüfte").replace(";c;", ";ß;")


def test_a_file_in_another_encoding_is_refused_in_words_that_say_how_to_tell(tmp_path: Path) -> None:
    for encoding in ("cp1252", "utf-16"):
        with pytest.raises(HanseError, match=r"ward.csv: its text is not utf-8 .*HANSE_TABLE.*{encoding: cp1252}"):
            digest(tmp_path, OF_HIPS.encode(encoding), HIP)
    with pytest.raises(HanseError, match="its text is not utf-16"):
        digest(tmp_path, OF_HIPS.encode("cp1252") + b"\n", HIP, encoding="utf-16")


@pytest.mark.parametrize("encoding", ["cp1252", "iso-8859-15", "utf-16", "mac-roman"])
def test_a_stated_encoding_gives_the_same_table(tmp_path: Path, encoding: str) -> None:
    assert digest(tmp_path, OF_HIPS.encode(encoding), HIP, encoding=encoding) == digest(tmp_path, OF_HIPS, HIP)
    with pytest.raises(HanseError, match=r"HANSE_TABLE: encoding: .*'cp1252'"):
        TableOptions.of("{encoding: ansi}")


@pytest.mark.parametrize("text", ["{separator: '|'}", "[;]", "{separators: ';'}"])
def test_table_options_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(HanseError, match="HANSE_TABLE: "):
        TableOptions.of(text)
    assert TableOptions.of("{separator: ';', decimal: ','}") == TableOptions(separator=";", decimal=",")


LABELLED = TabularSchema.model_validate({
    "features": [{"name": "age"}], "target": "ill",
    "labels": ["well", {"name": "stroke", "cells": ["2", "I63"]}, "other"],
})  # fmt: skip


@pytest.mark.parametrize("read", [read_site_data, read_site_tables])
def test_classes_that_files_have_as_texts_are_numbered_as_the_schema_lists_them(tmp_path: Path, read: Any) -> None:
    told = read(settings(tmp_path, "age;ill\n1,5;stroke\n2;well\n3;I63\n4; 2\n"), LABELLED)
    examples = getattr(told.train, "examples", told.train)
    assert examples.y.tolist() == [1, 0, 1, 1]
    pd.DataFrame({"age": [1, 2], "ill": [2, 2]}).to_parquet(tmp_path / "ward.parquet")
    told = read(DataSettings(train=tmp_path / "ward.parquet", test_fraction=0), LABELLED)
    assert getattr(told.train, "examples", told.train).y.tolist() == [1, 1]


@pytest.mark.parametrize("cell", ["Stroke", "", "1"])
def test_a_class_that_the_schema_does_not_list_is_refused(tmp_path: Path, cell: str) -> None:
    with pytest.raises(HanseError, match="column ill, line 3: one of the schema's labels was expected") as raised:
        read_site_tables(settings(tmp_path, f"age,ill\n1,well\n2,{cell}\n"), LABELLED)
    assert "Stroke" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"classes": 2}, "3, one for each of 2 classes was expected"),
        ({"task": "regression", "classes": None}, "they belong to a classification"),
        ({"labels": ["a", {"name": "b", "cells": ["a"]}]}, "'a' is there twice"),
        ({"labels": ["a"]}, "classes"),
        ({"labels": [{"name": "a", "cell": ["b"]}, "c"]}, "Extra inputs"),
    ],
)
def test_labels_that_are_not_one_for_each_class_are_refused(changes: dict[str, Any], told: str) -> None:
    body = {"features": [{"name": "age"}], "target": "ill", "labels": ["a", "b", "c"]}
    with pytest.raises(ValidationError, match=told):
        TabularSchema.model_validate(body | changes)
    assert TabularSchema.model_validate(LABELLED.model_dump(mode="json")) == LABELLED
    assert LABELLED.classes == 3


BAD = "age,lactate,ward,seen,ill\n" + "".join(
    f"{age},{lactate},c,{seen},{ill}\n"
    for age, lactate, seen, ill in [
        (130, 1, "2026-01-01", 0), (40, "?", "2026-01-01", 1), (41, 2, "soon", 0), (42, 3, "", 7),
        *((50 + at % 30, at, "2026-01-02", at % 2) for at in range(96)),
    ]
)  # fmt: skip


def test_a_site_tolerates_a_share_of_bad_cells_of_each_column_and_no_more(tmp_path: Path) -> None:
    told = read_site_tables(settings(tmp_path, BAD, tolerance={"cells": 0.01}), SCHEMA)
    table = told.train
    assert (len(table), told.set_aside, told.told) == (99, 4, 0)
    assert [np.isnan(table.columns[name]).sum() for name in ("age", "lactate", "seen")] == [1, 1, 1]
    assert set(table.examples.y.tolist()) == {0, 1}
    with pytest.raises(HanseError, match="column age, line 2: at most 120 was expected"):
        read_site_tables(settings(tmp_path, BAD, tolerance={"cells": 0.0099}), SCHEMA)


def test_rows_with_bad_cells_are_dropped_where_the_site_says_so(tmp_path: Path) -> None:
    tolerance = {"cells": 0.01, "then": "drop", "tell": True}
    told = read_site_tables(settings(tmp_path, BAD, tolerance=tolerance), SCHEMA)
    assert (len(told.train), told.set_aside, told.told) == (96, 4, 4)
    assert not np.isnan(told.train.columns["age"]).any()
    parted = settings(tmp_path, BAD, tolerance=tolerance).model_copy(update={"test_fraction": 0.25})
    two = read_site_tables(parted, SCHEMA)
    assert two.test is not None
    assert two.test.rows is not None
    assert two.train.rows is not None
    # Messages still count the file's lines.
    assert sorted([*two.test.rows, *two.train.rows]) == list(range(4, 100))
    with pytest.raises(HanseError, match="no examples without a bad cell"):
        read_site_tables(
            settings(tmp_path, "age,lactate,ill\n?,1,0\n1,?,1\n", tolerance={"cells": 0.5, "then": "drop"}), NUMBERS
        )
