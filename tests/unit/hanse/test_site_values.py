"""What an administrator is shown of a table, for the schema that its owner writes."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from hanse.site_values import values_of
from hanse_fabric.errors import HanseError
from hanse_schemas.schema import TabularSchema
from unit.hanse.typed_command import Run

WARDS = ["stroke"] * 12 + ["null"] * 10 + ["burns, hot"] * 11 + ["Mrs Miller"] + [None] * 2


def table(folder: Path) -> Path:
    frame = pd.DataFrame({"ward": WARDS, "age": range(36), "seen": [f"note {at}" for at in range(36)]})
    frame["ward"] = frame["ward"].replace("null", "déjà")
    path = folder / "ward.csv"
    frame.to_csv(path, index=False)
    return path


def values(run: Run, *arguments: object) -> str:
    done = run("site", "values", *arguments)
    assert done.status == 0
    return done.out


def test_values_of_enough_rows_are_lines_of_a_schema_and_no_rare_one_is_shown(tmp_path: Path, run: Run) -> None:
    told = values(run, table(tmp_path))
    assert "Miller" not in told
    assert "note" not in told
    assert "1 rows have values of fewer than 10 rows, 2 have none" in told
    schema = TabularSchema.model_validate({"features": yaml.safe_load(told), "target": "ill", "classes": 2})
    assert [(each.name, each.kind, each.values) for each in schema.features] == [
        ("ward", "category", ("burns, hot", "déjà", "stroke")), ("seen", "text", ()),
    ]  # fmt: skip
    body = json.loads(values(run, table(tmp_path), "--at-least", 1, "--column", "ward", "--json"))
    assert body == {
        "ward": {"kind": "category", "values": ["Mrs Miller", "burns, hot", "déjà", "stroke"], "fewer": 0, "missing": 2}
    }


def test_a_file_of_semicolons_and_a_parquet_file_give_the_same(tmp_path: Path) -> None:
    path = table(tmp_path)
    expected = values_of(path)
    frame = pd.read_csv(path)
    frame.to_csv(tmp_path / "de.csv", index=False, sep=";")
    frame.to_parquet(tmp_path / "ward.parquet")
    assert values_of(tmp_path / "de.csv") == values_of(tmp_path / "ward.parquet") == expected


def test_beside_decimal_commas_texts_keep_their_commas_and_numbers_are_none_of_them(tmp_path: Path) -> None:
    """They were read as numbers are: the administrator of such a file was shown `burns. hot`."""
    frame = pd.read_csv(table(tmp_path)).assign(crp=[f"{at},5" for at in range(36)])
    frame.to_csv(tmp_path / "de.csv", index=False, sep=";")
    assert values_of(tmp_path / "de.csv") == values_of(table(tmp_path))


DATES = {
    "iso": "2026-{month:02}-{day:02}", "german": "{day}.{month}.2026", "american": "{month}/{day}/2026",
    "with_time": "2026-{month:02}-{day:02} 08:30",
}  # fmt: skip


def test_columns_of_dates_are_dates_whatever_their_form_and_their_values_are_not_shown(
    tmp_path: Path, run: Run
) -> None:
    """They were called text, and so left out of the model."""
    frame = pd.DataFrame(
        {name: [form.format(day=at % 28 + 1, month=at % 12 + 1) for at in range(40)] for name, form in DATES.items()}
    )
    frame["early"] = [f"{at % 9 + 1}/{at % 8 + 1}/2026" for at in range(40)]
    frame["ward"] = ["A", "B"] * 20
    frame.loc[3, "iso"], frame.loc[5, "german"] = "unknown", None
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = values(run, tmp_path / "t.csv")
    schema = TabularSchema.model_validate({"features": yaml.safe_load(told), "target": "ill", "classes": 2})
    assert {each.name: each.kind for each in schema.features} == dict.fromkeys((*DATES, "early"), "date") | {
        "ward": "category"
    }
    assert "1 rows have what is no date, 0 have none" in told
    assert told.count("which is the month: add formats") == 1
    assert "2026-" not in told
    stored = pd.DataFrame({"seen": pd.to_datetime(frame["with_time"])})
    stored.to_parquet(tmp_path / "t.parquet")
    assert [each.kind for each in values_of(tmp_path / "t.parquet")] == ["date"]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match="there is no such file"):
        values_of(tmp_path / "absent.csv")
    with pytest.raises(HanseError, match="columns: 'bed' is not one of ward, age, seen"):
        values_of(table(tmp_path), columns=("bed",))
    with pytest.raises(HanseError, match="at_least"):
        values_of(table(tmp_path), at_least=0)
    (tmp_path / "no.parquet").write_bytes(b"x" * 50)
    with pytest.raises(HanseError, match="it is no table"):
        values_of(tmp_path / "no.parquet")
