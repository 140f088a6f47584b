"""A site algorithm from another package trains as Hanse's own do; what is none says so by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hanse_fabric.errors import HanseError
from hanse_fabric.plugins import ALGORITHMS, built_in, find
from hanse_learning.config import AlgorithmConfig, check_model, check_train
from hanse_learning.server.config.checks import check_job_strategy
from hanse_learning.site.algorithms import adapt, train_round
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.session import Session
from hanse_schemas.job import check_job
from installed_package import DAMPED, DAMPED_ENTRY, install

PROBLEM = Problem((4,), 3, "classification")


@pytest.fixture
def damped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install(tmp_path, "damped", {"damped": DAMPED}, DAMPED_ENTRY))


def trained(algorithm: object) -> dict[str, torch.Tensor]:
    """The change that a round makes."""
    rng = np.random.default_rng(0)
    module = build(check_model({"name": "logistic", "dtype": "float64"}), PROBLEM, seed=1)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    data = Examples(rng.standard_normal((12, 4)).astype(np.float32), np.arange(12) % 3)
    session = Session(module=module, data=data, config=check_train({"algorithm": algorithm}), problem=PROBLEM, seed=2)
    train_round(session)
    assert adapt(session) == ""
    return {name: value - before[name] for name, value in module.state_dict().items()}


@pytest.mark.usefixtures("damped")
@pytest.mark.parametrize("algorithm", [{"name": "damped_steps", "share": 0.25}, {"name": "damped_steps"}])
def test_an_algorithm_from_a_package_makes_its_part_of_the_plain_change(algorithm):
    plain, made = trained("fedavg"), trained(algorithm)
    for name, change in plain.items():
        torch.testing.assert_close(made[name], change * algorithm.get("share", 0.5))


@pytest.mark.usefixtures("damped")
def test_an_algorithm_from_a_package_promises_nothing_that_it_does_not_declare():
    job = {"rounds": 1, "model": {"name": "logistic"}, "train": {"algorithm": "damped_steps"}}
    check_job_strategy(check_job(job))
    with pytest.raises(HanseError, match="fednova with algorithm damped_steps"):
        check_job_strategy(check_job(job | {"strategy": {"reduction": {"name": "fednova"}}}))
    with pytest.raises(HanseError, match="across_rounds: moments of damped_steps begin anew"):
        check_train({"algorithm": "damped_steps", "optimizer": {"across_rounds": True}})
    with pytest.raises(HanseError, match=r"algorithm\.share: Input should be less than or equal to 1"):
        check_train({"algorithm": {"name": "damped_steps", "share": 2}})


def test_a_name_that_nobody_offers_is_refused_with_those_that_are_known():
    with pytest.raises(HanseError, match=r"algorithm\.name: 'lion' is no algorithm .*; known are ditto, fedavg, "):
        check_train({"algorithm": "lion"})


def test_a_package_algorithm_must_be_a_subclass_of_algorithm_and_must_train(tmp_path, monkeypatch):
    source = (
        "from hanse_learning.config import AlgorithmConfig\nOther = int\nclass Idle(AlgorithmConfig): pass\n"
        "class Failing(AlgorithmConfig):\n    def train(self, session):\n        return session.nothing\n"
        "class Silent(AlgorithmConfig):\n    def train(self, session):\n        pass\n"
    )
    offered = {"other": "Other", "idle": "Idle", "failing": "Failing", "silent": "Silent"}
    entries = {"hanse.algorithms": {name: f"strange:{kind}" for name, kind in offered.items()}}
    monkeypatch.syspath_prepend(install(tmp_path, "strange", {"strange": source}, entries))
    with pytest.raises(HanseError, match=r"algorithm other of strange 1\.0: strange:Other is no subclass of Algorithm"):
        check_train({"algorithm": "other"})
    with pytest.raises(HanseError, match="algorithm idle: Idle has no train"):
        trained("idle")
    with pytest.raises(HanseError, match=r"failing of strange 1\.0 raised AttributeError in line 6 of strange\.py"):
        trained("failing")
    with pytest.raises(HanseError, match="algorithm silent: train: None is not a Trained"):
        trained("silent")


def test_what_an_algorithm_sends_beside_the_update_is_refused_with_masks_and_noise(tmp_path, monkeypatch):
    source = (
        "from hanse_learning.config import AlgorithmConfig\nclass Telling(AlgorithmConfig):\n    extras = ('c',)\n"
        "    def train(self, session): ...\n"
    )
    monkeypatch.syspath_prepend(
        install(tmp_path, "telling", {"telling": source}, {"hanse.algorithms": {"telling": "telling:Telling"}})
    )
    job = {
        "rounds": 1,
        "model": {"name": "logistic"},
        "train": {"algorithm": "telling"},
        "participants": {"minimum": 3},
    }
    check_job_strategy(check_job(job))
    with pytest.raises(HanseError, match=r"train\.algorithm\.name: 'telling' is not an algorithm that sends nothing"):
        check_job_strategy(check_job(job | {"secure_aggregation": {"mode": "pairwise"}}))


@pytest.mark.parametrize("plugin", built_in(ALGORITHMS), ids=lambda plugin: plugin.name)
def test_every_built_in_algorithm_is_found_by_its_own_name(plugin):
    kind = plugin.load()
    assert issubclass(kind, AlgorithmConfig)
    assert check_train({"algorithm": {"name": plugin.name}, "steps": 2} if plugin.name == "fedcmb" else
                       {"algorithm": {"name": plugin.name}}).algorithm.name == plugin.name  # fmt: skip
    assert find(ALGORITHMS, plugin.name).built_in
