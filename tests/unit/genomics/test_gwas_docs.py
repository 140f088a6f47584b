"""docs/gwas.md says what there is, and its studies and those of examples/studies are valid jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hanse_fabric.text_files import parse_yaml
from hanse_genomics.reasons import WORDS, Reason
from hanse_genomics.report import shared
from hanse_genomics.results.columns import columns_of
from hanse_schemas.job import STUDY, check_job
from hanse_schemas.study import Study

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "gwas.md").read_text()
STUDIES = sorted((ROOT / "examples" / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_examples_are_valid_studies(path: Path) -> None:
    job = check_job(parse_yaml(path.read_text(), "job file"))
    assert job.workflow == STUDY
    assert job.participants.minimum == 3


def test_the_study_file_of_the_page_is_valid() -> None:
    (body,) = [text for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if text.startswith("workflow:")]
    job = check_job(yaml.safe_load(body))
    assert job.study is not None
    named = set(yaml.safe_load(body)["study"])
    assert named | {"few_cohorts", "few_samples", "few_values"} == set(Study.model_fields)


def test_every_column_and_every_reason_is_named() -> None:
    for test in ("chi_square", "trend", "linear", "logistic"):
        (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| {test} |") and "`" in line]
        words = set(re.sub(r"[|()`]", " ", row).split())
        assert set(columns_of(Study(test=test))) <= words, test
    for reason in Reason:
        if reason is not Reason.TESTED:
            assert f"| {reason.name} | {WORDS[reason]} |" in TEXT, reason.name


def test_the_gwas_page_lists_all_that_is_sent_as_the_report_does() -> None:
    said = [one for one in vars(shared).values() if isinstance(one, shared.Shared)]
    assert len(said) == 9
    for one in said:
        assert f"| {one.what} | {'masked' if one.masked else 'in clear'} |" in TEXT, one.step
