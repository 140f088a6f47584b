"""docs/preparation.md: its schema and its job are taken as they stand, and its table names every setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.text_files import parse_yaml
from hanse_schemas.job import check_job
from hanse_schemas.prepare import CategoryRule, NumberRule, Prepare, completed_job
from hanse_schemas.protocols import PROTOCOLS
from hanse_schemas.schema import ArraySchema, Column, OpenSchema, TabularSchema
from hanse_site.identity import parse_schema
from hanse_workflows.submission import check_submitted

_PAGE = (Path(__file__).parents[3] / "docs/preparation.md").read_text()
_SCHEMA, _JOB = (parse_yaml(block, "page") for block in re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL))
_PLAIN = {"rounds": 1, "model": {"name": "logistic"}}
_PRIVATE = {"mechanism": "dp_sgd", "placement": "local", "noise_multiplier": 1.0}


@pytest.fixture
def schema() -> TabularSchema:
    found = parse_schema(_SCHEMA)
    assert isinstance(found, TabularSchema)
    return found


def test_the_pages_job_is_taken_with_a_rule_for_every_column(schema: TabularSchema) -> None:
    job = completed_job(check_job(_JOB), schema)
    check_submitted(job, schema=schema)
    assert isinstance(job.prepare, Prepare)
    rules = {rule.name: rule for rule in job.prepare.rules}
    assert list(rules) == [column.name for column in schema.features]
    creatinine, ward = rules["creatinine"], rules["ward"]
    assert isinstance(creatinine, NumberRule)
    assert isinstance(ward, CategoryRule)
    assert (creatinine.log, creatinine.scale, ward.unknown, ward.rare) == (True, "standard", "other", 10)
    again = check_job(job.model_dump(mode="json"))
    assert completed_job(again, schema) == job == again


def test_the_pages_table_has_every_setting() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", _PAGE, re.MULTILINE)) - PROTOCOLS.keys()
    said_elsewhere = {"constant", "buckets"}
    of_schema = {"name", "kind", "minimum", "maximum", "formats", "values"}
    assert told | said_elsewhere == (set(NumberRule.model_fields) | set(CategoryRule.model_fields)) - of_schema


def test_the_page_has_every_protocol_of_fine_questions_with_its_bound() -> None:
    rows = [row for row in _PAGE.splitlines() if row.startswith("| `") and row.split("`")[1] in PROTOCOLS]
    assert [row.split("`")[1] for row in rows] == list(PROTOCOLS)
    for row, one in zip(rows, PROTOCOLS.values(), strict=True):
        assert f"{one.tells[:20]}" in row
        assert f"{one.most:,} numbers" in row


def test_a_job_that_says_nothing_is_given_the_default(schema: TabularSchema) -> None:
    assert completed_job(check_job(_PLAIN), schema) == completed_job(check_job(_PLAIN | {"prepare": {}}), schema)


@pytest.mark.parametrize(
    "changes",
    [
        {"prepare": "none"},
        {"initial_model": "0" * 64},
        {"code": {"name": "own", "digest": "0" * 64}},
        {"privacy": _PRIVATE},
    ],
)
def test_there_is_no_default_where_columns_are_seen_as_they_are(changes: dict[str, object]) -> None:
    job = check_job(_PLAIN | changes)
    numbers = TabularSchema(features=(Column(name="x"),), target="y")
    assert completed_job(job, numbers) == job


@pytest.mark.parametrize("schema", [None, OpenSchema(), ArraySchema(shape=(2,))])
def test_data_that_are_no_table_are_given_none(schema: OpenSchema | ArraySchema | None) -> None:
    job = check_job(_PLAIN)
    assert completed_job(job, schema) is job


def test_a_section_for_data_that_are_no_table_is_refused() -> None:
    with pytest.raises(HanseError, match="prepare: 'array' is not a section for this project's data"):
        completed_job(check_job(_PLAIN | {"prepare": {}}), ArraySchema(shape=(2,)))


def test_none_is_refused_where_a_column_is_no_number(schema: TabularSchema) -> None:
    with pytest.raises(HanseError, match="column ward is a category, which no model sees as it is"):
        completed_job(check_job(_PLAIN | {"prepare": "none"}), schema)


def test_with_privacy_only_a_preparation_that_tells_nothing_is_taken() -> None:
    schema = TabularSchema(features=(Column(name="x", minimum=0, maximum=1),), target="y", classes=2)
    private = check_job(_PLAIN | {"train": {"batch_size": 8}, "privacy": _PRIVATE})
    telling = completed_job(private.model_copy(update={"prepare": Prepare()}), schema)
    with pytest.raises(HanseError, match="sums of the sites' tables"):
        check_submitted(telling, schema=schema)
    quiet = Prepare(numbers={"scale": "minmax", "missing": "constant", "indicator": False})
    check_submitted(completed_job(private.model_copy(update={"prepare": quiet}), schema), schema=schema)
