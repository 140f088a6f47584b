"""docs/algorithms.md names every algorithm with its parameters, and its jobs can be submitted."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest
import yaml

from hanse_fabric.plugins import ALGORITHMS, built_in
from hanse_learning.config import StateRule, check_learning
from hanse_learning.server.config.checks import check_job_strategy
from hanse_schemas.job import check_job

PAGE = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text()
JOBS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_every_algorithm_is_in_the_table_with_its_parameters() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|([^|]*)\|", PAGE, re.MULTILINE)
    listed = {name: row for named, row in rows for name in re.findall(r"`(\w+)`", named)}
    for plugin in built_in(ALGORITHMS):
        settings = plugin.load().model_fields.keys() - {"name"}
        assert settings <= set(re.findall(r"`(\w+)`", listed[plugin.name])), plugin.name
    assert set(typing.get_args(StateRule.model_fields["keep"].annotation)) <= listed.keys()


@pytest.mark.parametrize("body", JOBS)
def test_the_jobs_of_the_page_can_be_submitted(body: str) -> None:
    job = check_job({"rounds": 2, **yaml.safe_load(body)})
    check_learning(job)
    check_job_strategy(job)
