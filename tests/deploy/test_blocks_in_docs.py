"""Every fenced block of every page is of one class: it is read here by the form that it is of, its commands are parsed
by test_commands_in_docs.py, or a test that is named reads it from the page and runs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from deploy.charts import ROOT
from deploy.pages import PAGES, Block, blocks_of
from deploy.typed_commands import commands
from hanse_datapod.policy.site_policy import check_policy
from hanse_datapod.worker.pool.choice import read_pools
from hanse_fabric.errors import HanseError
from hanse_fabric.text_files import parse_yaml
from hanse_schemas.job import check_job
from hanse_schemas.schema import DataSchema
from hanse_workflows.submission import check_submitted

PLAIN = {"rounds": 2, "model": {"name": "logistic"}, "participants": {"minimum": 5}}
"""A job that is taken, to which a block adds its sections."""
STUDY = {"workflow": "association_study", "participants": {"minimum": 3}, "study": {"test": "logistic"}}

FORMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("README.md", "Private by a line in the job"): ("job",),
    ("README.md", "Genomes, too"): ("study",),
    ("docs/algorithms.md", "Which entries are shared"): ("job",) * 5,
    ("docs/algorithms.md", "Personal lottery tickets"): ("job",),
    ("docs/algorithms.md", "Optimizers, schedules, losses"): ("job",),
    ("docs/bring-your-code.md", "At a site"): ("policy", "policy"),
    ("docs/bring-your-code.md", "The job"): ("job", "job"),
    ("docs/codecs.md", "Models and updates in fewer bytes"): ("job",),
    ("docs/experiments.md", "Experiments"): ("tests/unit/learning_lab/test_lab_report.py",),
    ("docs/extending.md", "Into a deployment"): ("tests/unit/learning/test_extending_docs.py", "policy"),
    ("docs/first-afternoon.md", "A project"): ("schema",),
    ("docs/first-afternoon.md", "At each hospital: a datapod"): ("policy",),
    ("docs/first-afternoon.md", "At the university: a run"): ("job",),
    ("docs/gwas.md", "The study file"): ("study",),
    ("docs/model-metrics.md", "Metrics of a model"): ("tests/unit/learning/test_model_metrics_page.py",),
    ("docs/model-metrics.md", "Concordance"): ("schema",),
    ("docs/model-metrics.md", "Groups of patients"): ("tests/unit/learning/test_model_metrics_page.py",),
    ("docs/model-metrics.md", "With differential privacy"): ("tests/unit/learning/test_model_metrics_page.py",),
    ("docs/models.md", "Models"): ("job",),
    ("docs/models.md", "Losses"): ("job",),
    ("docs/models.md", "Equal to training on the pooled data"): ("job",),
    ("docs/operator.md", "On Kubernetes"): ("rules of prometheus-adapter",),
    ("docs/own-pipeline.md", "The job"): ("job",),
    ("docs/owner.md", "With a browser alone"): ("schema",),
    ("docs/owner.md", "A job"): ("job",),
    ("docs/owner.md", "Uneven sites"): ("job",),
    ("docs/owner.md", "Masked sums"): ("job",),
    ("docs/owner.md", "Differential privacy"): ("job",),
    ("docs/population-structure.md", "Population structure of a study"): ("study",),
    ("docs/preparation.md", "Raw tables"): ("schema", "tests/unit/schemas/test_preparation_page.py"),
    ("docs/preparation.md", "Under differential privacy"): ("tests/unit/schemas/test_preparation_page.py",),
    ("docs/scale.md", "Adding a region"): ("values of hanse",),
    ("docs/site-administrator.md", "One datapod for all projects"): ("policy",),
    ("docs/site-administrator.md", "On Kubernetes"): ("values of hanse-datapod",),
    ("docs/site-administrator.md", "Pools with GPUs"): ("values of hanse-datapod",),
    ("docs/site-administrator.md", "Policy"): ("policy",),
    ("docs/site-administrator.md", "GPUs"): ("pools",),
    ("docs/site-administrator.md", "Association studies"): ("policy",),
    ("docs/strategies.md", "Strategies"): ("job",) * 3,
}
"""What the YAML under a heading is, block by block: a form of the table below, or the test that reads it."""

RUN_BY: Mapping[tuple[str, str], tuple[Any, ...]] = {
    ("README.md", "python"): (2, "tests/deploy/test_wheels.py", "tests/e2e/test_pages.py"),
    ("docs/bring-your-code.md", "python"): (1, "tests/unit/datapod_worker/test_bring_your_code_docs.py"),
    ("docs/extending.md", "python"): (
        8,
        "tests/unit/learning/test_extending_docs.py",
        "tests/simulation/test_joint_computations.py",
    ),
    ("docs/extending.md", "toml"): (1, "tests/unit/learning/test_extending_docs.py"),
    ("docs/gwas.md", "python"): (1, "tests/e2e/test_pages.py"),
    ("docs/http-api.md", "json"): (1, "tests/unit/coordinator_api/test_http_api_page.py"),
    ("docs/http-api.md", "sh"): (2, "tests/unit/coordinator_api/test_http_api_page.py"),
    ("docs/model-metrics.md", "python"): (1, "tests/e2e/test_pages.py"),
    ("docs/models.md", "python"): (2, "tests/e2e/test_pages.py"),
    ("docs/own-pipeline.md", "python"): (2, "tests/unit/hanse/test_own_pipeline_page.py"),
    ("docs/owner.md", "python"): (4, "tests/e2e/test_pages.py"),
    ("docs/preparation.md", "python"): (1, "tests/e2e/test_pages.py"),
    ("docs/runs.md", "python"): (2, "tests/e2e/test_pages.py", "tests/unit/hanse/test_run_exports.py"),
    ("docs/signing-in.md", "sh"): (1, "tests/unit/coordinator_api/test_api_provider.py"),
    ("docs/strategies.md", "python"): (1, "tests/e2e/test_pages.py"),
}
"""How many blocks of another language a page has, and the tests that run them."""


def _job(body: Any) -> None:
    own = {} if "code" in body else PLAIN  # code makes its model itself
    check_submitted(check_job({**own, **body}))


def _study(body: Any) -> None:
    check_submitted(check_job({**STUDY, **body}))


def _pools(body: Any, folder: Path) -> None:
    (folder / "pools.yaml").write_text(json.dumps(body))
    assert read_pools(folder / "pools.yaml")


def _values(chart: str) -> Callable[[Any], None]:
    schema = json.loads((ROOT / "charts" / chart / "values.schema.json").read_text())
    return lambda body: jsonschema.validate(body, schema)


def _adapter(body: Any) -> None:
    (rule,) = body["rules"]["external"]
    assert f"`{rule['seriesQuery']}`" in (ROOT / "docs/metrics.md").read_text()


def read_as(form: str, block: Block, folder: Path) -> None:
    """Have the block read by what the form is of."""
    body = parse_yaml(block.text, str(block))
    match form:
        case "job":
            _job(body)
        case "study":
            _study(body)
        case "schema":
            TypeAdapter[DataSchema](DataSchema).validate_python(body)
        case "policy":
            check_policy(body, str(block))
        case "pools":
            _pools(body, folder)
        case "values of hanse" | "values of hanse-datapod":
            _values(form.removeprefix("values of "))(body)
        case "rules of prometheus-adapter":
            _adapter(body)
        case _:
            raise ValueError(f"{form}: expected a form")


def reads(test: str, page: str) -> None:
    """Check that a test names the page."""
    assert Path(page).name in (ROOT / test).read_text(), f"{test} does not read {page}"


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_of_one_class(block: Block, tmp_path: Path) -> None:
    others = [one for one in BLOCKS if one.page == block.page and one.language == block.language]
    if (given := RUN_BY.get((block.page, block.language))) is not None:
        number, *tests = given
        assert number == len(others), f"{block}: {tests} run {number}, the page has {len(others)}"
        for test in tests:
            reads(test, block.page)
    elif (block.page, block.heading) in FORMS and block.language in ("yaml", ""):
        here = [one for one in BLOCKS if (one.page, one.heading) == (block.page, block.heading)]
        here = [one for one in here if one.language == block.language]
        form = FORMS[block.page, block.heading][here.index(block)]
        assert len(here) == len(FORMS[block.page, block.heading]), f"{block}: name each block's form"
        reads(form, block.page) if form.endswith(".py") else read_as(form, block, tmp_path)
    elif block.language == "sh":
        assert commands(block.text), f"{block}: no command that test_commands_in_docs.py parses"
    elif block.language == "text":
        assert "─" in block.text, f"{block}: a drawing was expected"
    else:
        pytest.fail(f"{block}: {block.language or 'a block without language'} of no class: see FORMS and RUN_BY")


def test_the_tables_name_no_block_that_is_not_there() -> None:
    assert FORMS.keys() <= {(block.page, block.heading) for block in BLOCKS}
    assert RUN_BY.keys() <= {(block.page, block.language) for block in BLOCKS}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("job", "roundz: 3"), ("job", "privacy: {placement: distributed}"), ("study", "study: {tests: logistic}"),
        ("schema", "{kind: tabular, features: [age]}"), ("policy", "minimum_participant: 3"),
        ("pools", "pools: [{name: a, device: gpus}]"), ("values of hanse", "nats: {leafs: {}}"),
        ("recipe", "{}"),
    ],
)  # fmt: skip
def test_a_block_that_its_form_does_not_take_is_found(form: str, text: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, HanseError, jsonschema.ValidationError)):
        read_as(form, Block("docs/none.md", 1, "yaml", 0, "None", text), tmp_path)
