"""docs/strategies.md names every strategy there is, and its jobs can be submitted."""

import re
import typing
from pathlib import Path

import yaml

from hanse_fabric.plugins import SERVER_OPTIMIZERS, STRATEGIES, built_in
from hanse_learning.config import TrainConfig
from hanse_learning.server.config import AdaptiveConfig, checks
from hanse_schemas.job import Job

PAGE = (Path(__file__).parents[3] / "docs" / "strategies.md").read_text()


def test_every_strategy_is_in_a_table():
    listed = set()
    for row in re.findall(r"^\| (`[^|]*`) \|", PAGE, re.MULTILINE):
        listed |= set(re.findall(r"`(\w+)`", row))
    named = {plugin.name for group in (STRATEGIES, SERVER_OPTIMIZERS) for plugin in built_in(group)}
    assert listed == named - {"private_mean"}
    assert set(typing.get_args(AdaptiveConfig.model_fields["name"].annotation)) <= listed


def test_the_jobs_of_the_page_can_be_submitted(monkeypatch):
    monkeypatch.setattr(checks, "check_train", lambda train: TrainConfig.model_validate(train))
    jobs = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(jobs) == 3
    for body in jobs:
        checks.check_job_strategy(
            Job.model_validate({"rounds": 1, "model": {"name": "logistic"}, **yaml.safe_load(body)})
        )
