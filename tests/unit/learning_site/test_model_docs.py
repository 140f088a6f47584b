"""docs/models.md names every model and loss there is, with the right counts; every line and job of docs/owner.md can be
submitted."""

from __future__ import annotations

import math
import re
import typing
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from hanse_fabric.plugins import ALGORITHMS, built_in
from hanse_learning.config import BUILT_IN, FocalConfig, check_learning, check_model
from hanse_learning.config.checks import check_train
from hanse_learning.config.normalization import Normalization
from hanse_learning.config.state import StateRule
from hanse_learning.config.training import OF_CLASSES, OF_VALUES, Loss
from hanse_learning.server.config import checks
from hanse_learning.site.examples import Problem
from hanse_learning.site.models import build
from hanse_learning.site.state_policy import groups_of, kept_by
from hanse_learning.utility import check_utility, require_utility
from hanse_privacy.rules import check_rules
from hanse_schemas.job import check_job

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "models.md").read_text()
OWNER = (DOCS / "owner.md").read_text()
_MODELS = re.findall(r"^\| `(\{name[^`]*)` \|[^|]*\| ([\dx]+), (\d+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)
_TRAINED = re.findall(r"^\| `(\{algorithm[^`]*)` \|", OWNER, re.MULTILINE)
_STATES = re.findall(r"^\| \w[\w-]* \| `(\[[^`]*\])` \|", OWNER, re.MULTILINE)
_STRATEGIES = re.findall(r"^\| `(\{(?:reduction|optimizer|sign_mask)[^`]*)` \|", OWNER, re.MULTILINE)
_JOBS = re.findall(r"```yaml\n(.*?)```", PAGE + OWNER, re.DOTALL)


def submitted(body: dict[str, Any]) -> None:
    """As the hub checks a job when it is submitted."""
    job = check_job({"rounds": 200, "model": {"name": "mlp"}, "participants": {"minimum": 5}} | body)
    check_learning(job)
    checks.check_job_strategy(job)
    check_rules(job)
    check_utility(job)
    if job.utility_preserving:
        require_utility(job)


def names_of(union: Any) -> set[str]:
    """The values of `name` in a union of sections."""
    sections = typing.get_args(typing.get_args(union)[0])
    return {name for section in sections for name in typing.get_args(section.model_fields["name"].annotation)}


@pytest.mark.parametrize(("config", "shape", "outputs", "count"), _MODELS, ids=[row[0] for row in _MODELS])
def test_each_model_has_so_many_parameters(config: str, shape: str, outputs: str, count: str) -> None:
    model = check_model(yaml.safe_load(config))
    sizes = tuple(int(size) for size in shape.split("x"))
    with torch.device("meta"):
        module = build(model, Problem(shape=sizes, outputs=int(outputs), task="classification"))
    assert sum(math.prod(entry.shape) for entry in module.parameters()) == int(count.replace(",", ""))


def test_every_model_normalization_and_loss_is_in_the_tables() -> None:
    assert {yaml.safe_load(config)["name"] for config, *_ in _MODELS} == BUILT_IN
    losses = PAGE.split("## Losses")[1].split("##")[0]
    assert all(f"| `{name}` |" in losses for name in typing.get_args(Loss))
    assert all(f"`{name}`" in PAGE for name in typing.get_args(Normalization))
    focal = re.search(r"`(\{name: focal[^`]*)`", losses)
    assert focal is not None
    assert FocalConfig.model_validate(yaml.safe_load(focal[1])) == FocalConfig(name="focal")
    for shown in re.findall(r"^\| `(\{.*?\})`", losses, re.MULTILINE):
        assert check_train({"loss": yaml.safe_load(shown)}).loss_name in OF_CLASSES | OF_VALUES


@pytest.mark.parametrize("train", _TRAINED)
def test_each_algorithm_can_be_submitted_as_it_stands(train: str) -> None:
    body: dict[str, Any] = {"train": yaml.safe_load(train)}
    algorithm = body["train"]["algorithm"]
    if isinstance(algorithm, dict) and algorithm["name"] == "feddyn":
        body["strategy"] = {"optimizer": algorithm}
    if isinstance(algorithm, dict) and algorithm["name"] in ("fedltn", "lotteryfl"):
        body["strategy"] = {"reduction": {"name": "overlap_mean"}}
    submitted(body)


def test_every_algorithm_is_in_the_table() -> None:
    named = [yaml.safe_load(train)["algorithm"] for train in _TRAINED]
    assert {algorithm if isinstance(algorithm, str) else algorithm["name"] for algorithm in named} == {
        plugin.name for plugin in built_in(ALGORITHMS)
    }


@pytest.mark.parametrize("rules", _STATES)
def test_each_state_policy_fits_a_model_with_batch_norm(rules: str) -> None:
    model = {"name": "mlp", "hidden": [8], "batch_norm": True, "state": yaml.safe_load(rules)}
    submitted({"model": model})
    policy: tuple[StateRule, ...] = check_model(model).state
    module = build(check_model(model), Problem(shape=(4,), outputs=3, task="classification"))
    assert set(kept_by(groups_of(module), policy, 1_000).values()) != {"global"}


def test_the_models_page_lists_five_state_policies() -> None:
    assert len(_STATES) == 5


@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_each_strategy_of_the_table_can_be_submitted(strategy: str) -> None:
    submitted({"strategy": yaml.safe_load(strategy)})


def test_the_tables_of_the_owners_page_are_read() -> None:
    assert len(_STRATEGIES) == 6
    assert len(_JOBS) >= 4


@pytest.mark.parametrize("job", _JOBS)
def test_the_jobs_of_the_pages_can_be_submitted(job: str) -> None:
    submitted(yaml.safe_load(job))
