"""docs/job-keys.md and docs/policy-keys.md have every key of the forms as they are, and examples that are accepted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from hanse_datapod.policy import keys as policy_keys
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.messages.base import Frozen
from hanse_fabric.plugins import ALGORITHMS, CODECS, SERVER_OPTIMIZERS, STRATEGIES, built_in
from hanse_learning import job_keys
from hanse_learning.codecs.config import check_chain
from hanse_learning.config import check_model, check_train
from hanse_learning.config.models import AnyModel
from hanse_learning.config.training import TrainConfig
from hanse_learning.server.config import check_strategy
from hanse_learning.server.config.reductions import PrivateMeanConfig
from hanse_learning.server.config.strategy import StrategyConfig
from hanse_schemas import schema as schemas
from hanse_schemas.job import Job, check_job
from hanse_schemas.prepare import CategoryRule, NumberRule, Prepare
from hanse_schemas.reference import page, sections
from hanse_schemas.reference.fields import hint
from hanse_schemas.reference.pages import flow
from hanse_schemas.reference.sections import Key, KeyNotes

DOCS = Path(__file__).parents[3] / "docs"
JOB = [key for each in sections((Job,), job_keys.given()) for key in each.keys]
SCHEMA = [key for each in job_keys.of_schema() for key in each.keys]
POLICY = [key for each in sections((Policy,), policy_keys.given()) for key in each.keys]
CHECKED_APART = {
    (Job, "model"): check_model,
    (Job, "train"): check_train,
    (Job, "strategy"): check_strategy,
    (Prepare, "numbers"): lambda given: Prepare(numbers=given),
    (Prepare, "categories"): lambda given: Prepare(categories=given),
}
"""Sections that are open mappings in their forms."""


def test_the_pages_are_those_that_the_commands_make() -> None:
    assert (DOCS / "job-keys.md").read_text() == job_keys.text(), "run make job-keys"
    assert (DOCS / "policy-keys.md").read_text() == policy_keys.text(), "run make job-keys"


def _named_in(*forms: Any) -> set[str]:
    """The keys of all objects in the JSON schemas of the forms: another way to them than the page's."""
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.update(node.get("properties", ()))
            for inner in node.values():
                walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    for form in forms:
        walk(TypeAdapter(form).json_schema())
    return found


def test_no_key_is_left_out() -> None:
    plugged = [one.load() for group in (ALGORITHMS, STRATEGIES, SERVER_OPTIMIZERS, CODECS) for one in built_in(group)]
    plugged.remove(PrivateMeanConfig)  # a job has it by its section `privacy`
    there = _named_in(
        Job, TrainConfig, StrategyConfig, *get_args(AnyModel), *plugged, NumberRule, CategoryRule, schemas.DataSchema
    )  # fmt: skip
    inside = _named_in(Prepare.model_fields["fitted"].annotation) | {"fitted"}  # what a run finds
    told = {key.name for key in JOB + SCHEMA}
    assert there - told <= inside
    assert told <= there | {"name"}
    assert _named_in(Policy) == {key.name for key in POLICY}


def test_every_key_says_what_it_is() -> None:
    silent = [f"{key.form.__name__}.{key.name}" for key in JOB + SCHEMA + POLICY if not key.words]
    assert [each for each in silent if not each.endswith(".kind")] == []


@pytest.mark.filterwarnings("ignore:The .validation_alias. attribute")  # of a rate, which has two names
@pytest.mark.parametrize("key", JOB + SCHEMA + POLICY, ids=lambda key: f"{key.form.__name__}.{key.name}")
def test_an_example_is_accepted_and_no_default(key: Key) -> None:
    assert key.example is not None
    assert key.example != key.default or key.name == "kind"
    if apart := CHECKED_APART.get((key.form, key.name)):
        apart(key.example)
        return
    if key.form.__name__ == "Codec" and key.name in ("up", "down"):
        check_chain(key.example)
    TypeAdapter(hint(key.form, key.name)).validate_python(key.example)


def test_sections_of_a_job_are_accepted_with_their_examples() -> None:
    body = {"rounds": 20, "model": {"name": "mlp"}}
    for key in JOB:
        # A study is no training; `keep` stands on `stop`, and a name of a workflow on its section.
        if key.form is Job and key.name not in ("study", "keep", "workflow"):
            assert getattr(check_job(body | {key.name: key.example}), key.name) != Job.model_fields[key.name].default


class Inner(Frozen):
    """Inside."""

    kind: Literal["a", "b"] = "a"


class Outer(Frozen):
    """An outer form.

    Attributes:
        share: of a | whole,
            in parts.
        many: of them.
        inner: what is inside.
    """

    share: float = Field(default=0.5, gt=0, le=1)
    many: tuple[Annotated[int, Field(ge=3)], ...] = Field(max_length=4)
    inner: Inner | None = None
    open: bool = False


def test_what_stands_on_the_page_is_what_the_form_says() -> None:
    rows = page("T", "w", {"File": sections((Outer,), KeyNotes({}, {}, {}))}).splitlines()
    assert r"| `share` | `0.5` | number, above 0, at most 1 | `share: 1.0` | of a \| whole, in parts. |" in rows
    assert "| `many` | must be given | list of 0 to 4: whole number, at least 3 | `many: [10]` | of them. |" in rows
    assert "| `inner` | none | a section | `inner: {kind: b}` | what is inside. Its keys: [`inner`](#inner). |" in rows
    assert "| `open` | `false` | true or false | `open: true` |  |" in rows
    assert "| `kind` | `a` | `a`, `b` | `kind: b` |  |" in rows
    # The control: the example is tried against the bounds, so that it can fail.
    with pytest.raises(ValidationError):
        TypeAdapter(hint(Outer, "share")).validate_python(1.5)
    with pytest.raises(ValidationError):
        TypeAdapter(hint(Outer, "many")).validate_python([2])


def test_a_word_that_yaml_reads_as_something_else_is_quoted() -> None:
    assert flow(["yes", "ja", "null", "10", "a b"]) == '["yes", ja, "null", "10", "a b"]'


def test_the_links_of_a_page_lead_somewhere() -> None:
    for text in (job_keys.text(), policy_keys.text()):
        headings = {re.sub(r"[^\w-]", "", found.lower()) for found in re.findall(r"^#+ `([^`]+)`$", text, re.MULTILINE)}
        assert headings >= set(re.findall(r"\]\(#([^)]+)\)", text))
