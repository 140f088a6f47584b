"""docs/preparation.md: its schema and its job are taken as they stand, and its table names every setting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import PrivatePreparation
from hanse_fabric.text_files import parse_yaml
from hanse_schemas.job import Job, check_job
from hanse_schemas.prepare import CategoryRule, NumberRule, Prepare, completed_job
from hanse_schemas.protocols import PROTOCOLS
from hanse_schemas.schema import ArraySchema, Column, OpenSchema, TabularSchema
from hanse_site.identity import parse_schema
from hanse_workflows.submission import check_submitted

_PAGE = (Path(__file__).parents[3] / "docs/preparation.md").read_text()
_SCHEMA, _JOB, _NOISY_JOB = (parse_yaml(block, "page") for block in re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL))
_PLAIN = {"rounds": 1, "model": {"name": "logistic"}}
_PRIVATE = {"mechanism": "dp_sgd", "placement": "local", "noise_multiplier": 1.0}
_BUDGETED = {"mechanism": "dp_sgd", "placement": "local", "epsilon": 4.0}


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


def test_the_pages_private_job_is_taken_with_ends_for_every_column(schema: TabularSchema) -> None:
    job = completed_job(check_job(_NOISY_JOB), schema)
    check_submitted(job, schema=schema)
    assert isinstance(job.prepare, Prepare)
    ends = {rule.name: rule.ends for rule in job.prepare.rules if isinstance(rule, NumberRule)}
    days = (16436.0, 20818.0)
    assert ends == {"age": (0, 120), "creatinine": (20, 800), "smoker": (0, 1), "admitted": days}
    assert completed_job(check_job(job.model_dump(mode="json")), schema) == job


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


_TABLE = TabularSchema(
    features=(Column(name="x", minimum=0, maximum=1), Column(name="c", kind="category", values=("a", "b"))),
    target="y", classes=2,
)  # fmt: skip
_QUIET = {"numbers": {"scale": "minmax", "missing": "constant", "indicator": False}, "categories": {"missing": "own"}}


def private_job(prepare: dict[str, Any], privacy: dict[str, Any], **changes: Any) -> Job:
    train = {"batch_size": 8} | changes.pop("train", {})
    return completed_job(check_job(_PLAIN | {"train": train, "prepare": prepare, "privacy": privacy} | changes), _TABLE)


def test_a_private_job_whose_preparation_needs_sums_says_what_they_cost() -> None:
    job = private_job({}, _BUDGETED)
    check_submitted(job, schema=_TABLE)
    assert job.privacy is not None
    assert job.privacy.preparation == PrivatePreparation(share=0.1)
    assert completed_job(job, _TABLE) == job
    by_noise = private_job({}, _PRIVATE)
    assert by_noise.privacy is not None
    assert by_noise.privacy.preparation == PrivatePreparation(noise_multiplier=10.0)
    quiet = private_job(_QUIET, _BUDGETED)
    check_submitted(quiet, schema=_TABLE)
    assert quiet.privacy is not None
    assert quiet.privacy.preparation is None


_SITES = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
_OBLIVIOUS = {"placement": "distributed", "mechanism": "laplace", "noise": "oblivious", "epsilon": 4.0}
_MASKS = {
    "secure_aggregation": {"mode": "compensator", "bits": 64},
    "weighting": "uniform",
    "participants": {"minimum": 3},
}


@pytest.mark.parametrize(
    ("prepare", "privacy", "changes", "told"),
    [
        (_QUIET, _BUDGETED | {"preparation": {"share": 0.2}}, {}, "this job's preparation asks for no sums"),
        ({}, _SITES | {"placement": "central"}, {"weighting": "uniform"}, "the hub would see these without noise"),
        ({}, _OBLIVIOUS, _MASKS, "others draw this noise for a model's numbers alone"),
        ({"categories": {"rare": 5}}, _SITES, {}, "it hides whole sites"),
        ({}, _SITES, {"train": {"loss": {"name": "cross_entropy", "class_weights": "balanced"}}}, "whole sites"),
    ],
    ids=["nothing", "central", "oblivious", "rare", "classes"],
)  # fmt: skip
def test_what_no_noise_is_made_for_is_refused(
    prepare: dict[str, Any], privacy: dict[str, Any], changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(HanseError, match=told):
        check_submitted(private_job(prepare, privacy, **changes), schema=_TABLE)


def test_a_column_without_ends_is_refused_and_so_is_a_clip_that_nothing_reads() -> None:
    schema = TabularSchema(features=(Column(name="x"),), target="y", classes=2)
    body = _PLAIN | {"train": {"batch_size": 8}}
    with pytest.raises(HanseError, match=r"prepare\.columns: x\.clip"):
        check_submitted(completed_job(check_job(body | {"prepare": {}, "privacy": _PRIVATE}), schema), schema=schema)
    clipped = {"prepare": {"numbers": {"clip": [0, 1]}}}
    check_submitted(completed_job(check_job(body | clipped | {"privacy": _PRIVATE}), schema), schema=schema)
    with pytest.raises(HanseError, match="a section privacy, for whose sums cells are cut"):
        check_submitted(completed_job(check_job(body | clipped), schema), schema=schema)


@pytest.mark.parametrize(
    "preparation", [{}, {"share": 0.1, "noise_multiplier": 3.0}, {"noise_multiplier": 3.0}, {"share": 1.0}], ids=str
)
def test_what_a_preparation_costs_is_said_as_the_rounds_say_it(preparation: dict[str, float]) -> None:
    with pytest.raises(HanseError, match="preparation"):
        check_job(_PLAIN | {"privacy": _BUDGETED | {"preparation": preparation}})
