"""docs/extending.md: its code runs in order, its settings and its policy are accepted, and its tables are complete."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import hanse_learning
from hanse.new import kinds, write
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.plugins import KINDS
from hanse_learning.config import AlgorithmConfig, FedAvgConfig, TrainConfig, check_model
from hanse_learning.server.config import ReductionConfig
from hanse_learning.server.config.checks import check_job_strategy
from hanse_learning.server.reduction import Measured
from hanse_learning.site.algorithms import train_round
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.session import Session
from hanse_schemas.job import check_job
from installed_package import install

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "extending.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def defined() -> dict[str, Any]:
    """What the page's Python, run from the top to the end, has defined."""
    found: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "extending.md", "exec", dont_inherit=True), found)  # noqa: S102 - the page is ours
    return found


def test_the_strategy_of_the_page_has_twenty_lines_and_does_what_the_page_says(defined: dict[str, Any]) -> None:
    assert sum(bool(line.strip()) for line in blocks("python")[0].splitlines()) <= 20
    assert issubclass(defined["Winsorized"], ReductionConfig)
    assert defined["model"].tolist() == [2.5] * 3


def test_the_server_optimizer_of_the_page_goes_on_in_the_direction_of_the_round_before(defined: dict[str, Any]) -> None:
    optimizer = defined["Nesterov"](momentum=0.5)
    first, state = hanse_learning.reduce(optimizer, np.zeros(2), [np.ones(2)])
    second, _ = hanse_learning.reduce(optimizer, first, [np.ones(2)], state=state)
    assert (first.tolist(), second.tolist()) == ([1.5] * 2, [3.25] * 2)


def test_the_algorithm_of_the_page_makes_its_share_of_the_plain_change(defined: dict[str, Any]) -> None:
    changes = []
    for algorithm in (defined["Damped"](share=0.25), FedAvgConfig()):
        problem = Problem((4,), 3, "classification")
        module = build(check_model({"name": "logistic"}), problem, seed=1)
        before = next(iter(module.state_dict().values())).clone()
        data = Examples(np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32), np.arange(12) % 3)
        config = TrainConfig(algorithm=algorithm)
        train_round(Session(module=module, data=data, config=config, problem=problem, seed=2))
        changes.append((next(iter(module.state_dict().values())) - before).numpy())
    np.testing.assert_allclose(changes[0], changes[1] * 0.25, rtol=1e-4, atol=1e-7)


def test_the_workflow_of_the_page_is_the_one_that_is_written_and_run_by_a_hub(tmp_path: Path) -> None:
    write("workflow", "everybody", tmp_path)  # tests/e2e/test_plugin_run.py runs it
    source = (tmp_path / "everybody" / "src" / "everybody" / "__init__.py").read_text()
    (block,) = [block for block in blocks("python") if "Workflow(everybody" in block]
    assert block == source
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 30


def test_the_job_of_the_page_can_be_submitted_where_its_entry_point_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = tomllib.loads(blocks("toml")[0])["project"]["entry-points"]
    monkeypatch.syspath_prepend(install(tmp_path, "winsorized", {"winsorized": blocks("python")[0]}, entries))
    job, policy = blocks("yaml")
    check_job_strategy(check_job({"rounds": 1, "model": {"name": "logistic"}, **yaml.safe_load(job)}))
    assert Policy.model_validate(yaml.safe_load(policy)).plugins.strategies == ("winsorized",)


def test_the_page_has_every_group_method_and_attribute_there_is() -> None:
    named = set(re.findall(r"`(\w+)(?:\([\w, ]*\))?`", PAGE))
    methods = {name for name in vars(ReductionConfig) if not name.startswith(("_", "model_"))}
    assert methods - {"name", "examples", "measures"} <= named
    assert {"measure", "reweigh", "combine"} <= named & set(dir(Measured))
    declared = {name for name in AlgorithmConfig.__annotations__ if name != "name"}
    assert declared | {"train", "adapt"} <= named | set(re.findall(r"`(\w+)\(session\)`", PAGE))
    for kind in kinds():
        assert f"hanse new {kind} " in PAGE
        assert next(group for group, word in KINDS.items() if word == kind) in PAGE


def test_images_look_for_packages_in_the_folder_that_the_pages_name() -> None:
    folder = re.search(r"echo (\S+) >.*plugins\.pth", (ROOT / "docker" / "Dockerfile").read_text())
    assert folder is not None
    for page in ("extending.md", "images.md", "operator.md"):
        assert folder[1] in (ROOT / "docs" / page).read_text(), page
