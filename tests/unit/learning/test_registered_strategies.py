"""Every registered strategy is in every table, and one from another package is itself wherever it is computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import hanse_learning
from hanse_fabric.errors import HanseError
from hanse_fabric.plugins import SERVER_OPTIMIZERS, STRATEGIES, built_in
from hanse_learning import exact_tensors, on_tensors
from hanse_learning.on_device import open_device, tried
from hanse_learning.server.config import OptimizerConfig, ReductionConfig, check_strategy
from hanse_learning.server.config.checks import check_job_strategy
from hanse_learning.server.reduction import Measured
from hanse_learning.server.strategy import build_strategy
from hanse_learning.server.trial import try_out
from hanse_reduction.arithmetic import Processor
from hanse_schemas.job import check_job
from installed_package import WINSORIZED, WINSORIZED_ENTRY, install

ON_PROCESSOR = {"private_mean"}
"""Built-in strategies without a form for devices; whoever adds one says so here."""

BUILT_IN = [
    (plugin.name, {"reduction": {"name": plugin.name, **example}})
    for plugin in built_in(STRATEGIES)
    for example in plugin.load().examples
]
VALUES = [1.0, 2.0, 3.0, 1000.0]
SECTION = {"reduction": {"name": "winsorized_mean"}}


@pytest.fixture
def winsorized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install(tmp_path, "winsorized", {"winsorized": WINSORIZED}, WINSORIZED_ENTRY))


@pytest.mark.parametrize(("name", "section"), BUILT_IN, ids=[name for name, _ in BUILT_IN])
def test_every_registered_strategy_has_a_form_for_devices_and_measures_there_what_it_measures(name, section):
    reduction = build_strategy(section).reduction
    assert exact_tensors.has_form(reduction)
    assert isinstance(reduction, Measured) == (type(reduction) in on_tensors._MEASURES)
    assert section in tried()


@pytest.mark.parametrize("plugin", built_in(SERVER_OPTIMIZERS), ids=str)
def test_every_registered_server_optimizer_has_its_steps_on_tensors_and_keeps_what_it_says(plugin):
    config = plugin.load().model_validate({"name": plugin.name})
    assert exact_tensors.has_step(config.build())
    assert config.state == config.build().state


def test_a_server_optimizer_of_ones_own_makes_numpys_numbers_of_tensors():
    updates = [np.full(3, value) for value in (1.0, 2.0)]
    made, state = hanse_learning.reduce(Twice(), np.zeros(3), updates)
    tensors, _ = hanse_learning.reduce(Twice(), torch.zeros(3, dtype=torch.float64), [*map(torch.from_numpy, updates)])
    assert made.tolist() == tensors.tolist() == [3.0] * 3
    again, _ = hanse_learning.reduce(Twice(), made, updates, state=state)
    assert again.tolist() == [9.0] * 3


class Twice(OptimizerConfig):
    """Moves by the sum of all changes so far, two times."""

    name: str = "twice"

    @property
    def state(self):
        return {"total": 0.0}

    def step(self, model, change, state, round):  # noqa: A002
        state["total"] += change
        model += 2 * state["total"]


def test_an_optimizer_without_a_step_is_refused():
    class Idle(OptimizerConfig):
        name: str = "idle"

    with pytest.raises(HanseError, match=r"server optimizer idle: Idle has no step\(model, change, state, round\)"):
        build_strategy(Idle())


def test_only_the_strategies_that_are_named_here_are_left_to_the_processor():
    registered = {plugin.name for plugin in built_in(STRATEGIES)}
    assert registered - {name for name, _ in BUILT_IN} == ON_PROCESSOR


@pytest.mark.usefixtures("winsorized")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_winsorized_mean_from_a_package_is_2_5_on_arrays_tensors_and_devices(dtype):
    updates = [np.full(3, value, dtype) for value in VALUES]
    made, _ = hanse_learning.reduce(SECTION, np.zeros(3, dtype), updates)
    assert made.tolist() == [2.5] * 3
    tensors, _ = hanse_learning.reduce(SECTION, torch.zeros(3).to(torch.from_numpy(made).dtype),
                                       [torch.from_numpy(update) for update in updates])  # fmt: skip
    assert tensors.tolist() == [2.5] * 3
    strategy = build_strategy(SECTION)
    device = open_device("torch-cpu")
    assert not device.takes(strategy)
    for arithmetic in (Processor(), device):
        model = np.zeros(3, dtype)
        arithmetic.apply(strategy, model, updates, np.full(4, 0.25), {}, 1)
        assert model.tolist() == [2.5] * 3


@pytest.mark.usefixtures("winsorized")
def test_tensors_keep_the_state_and_the_masks_around_a_strategy_that_has_no_form_for_them():
    rng = np.random.default_rng(0)
    model, updates = rng.standard_normal(50), [rng.standard_normal(50) for _ in range(5)]
    section = SECTION | {"sign_mask": {"tau": 0.4}, "optimizer": {"name": "sgd"}}
    state, kept, found = None, None, torch.from_numpy(model)
    for _ in range(2):
        model, state = hanse_learning.reduce(section, model, updates, state=state)
        found, kept = hanse_learning.reduce(section, found, [torch.from_numpy(each) for each in updates], state=kept)
    assert found.numpy().tobytes() == model.tobytes()
    assert kept.arrays["momentum"]["0"].numpy().tobytes() == state.arrays["momentum"]["0"].tobytes()


def test_a_strategy_that_a_notebook_defines_reduces_arrays_without_being_installed():
    class Largest(ReductionConfig):
        name: str = "largest"

        def combine(self, updates, weights, out):
            out[...] = np.max(np.stack(updates), axis=0)

    made, _ = hanse_learning.reduce(Largest(), np.zeros(2), [np.array([1.0, 5.0]), np.array([2.0, 4.0])])
    assert made.tolist() == [2.0, 5.0]


@pytest.mark.parametrize(("name", "section"), BUILT_IN, ids=[name for name, _ in BUILT_IN])
def test_every_registered_strategy_keeps_what_is_asked_of_one(name, section):
    try_out(check_strategy(section).reduction)


class _Bad(ReductionConfig):
    name: str = "bad"
    fault: str

    def reweigh(self, totals, weights, info):
        return weights[:1] if self.fault == "weights" else weights

    def combine(self, updates, weights, out):
        rows = np.stack(updates).astype(out.dtype)
        out[...] = rows.mean(axis=0) if self.fault != "cuts" else rows.mean(axis=0) - rows.mean()
        if self.fault == "changes":
            updates[0][...] = 0
        if self.fault == "leaves out":
            out[-1] = np.nan


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("weights", "finite numbers from the strategy"), ("cuts", "same bits wherever columns are cut"),
        ("changes", "left as they came"), ("leaves out", "finite numbers in every column of float32"),
    ],
)  # fmt: skip
def test_trying_a_strategy_out_says_what_it_does_not_keep(fault, said):
    with pytest.raises(HanseError, match=said):
        try_out(_Bad(fault=fault))
    try_out(_Bad(fault="none"))


def test_a_strategy_that_needs_numbers_of_each_site_is_refused_with_noise(tmp_path, monkeypatch):
    source = WINSORIZED.replace(
        "    def least(self):", "    def needs(self):\n        return ('steps',)\n\n    def least(self):"
    )
    monkeypatch.syspath_prepend(install(tmp_path, "winsorized", {"winsorized": source}, WINSORIZED_ENTRY))
    privacy = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "epsilon": 2.0, "delta": 1e-5}
    job = {"rounds": 1, "model": {"name": "logistic"}, "participants": {"minimum": 3}, "strategy": SECTION}
    check_job_strategy(check_job(job))
    with pytest.raises(HanseError, match=r"winsorized_mean with privacy: the steps that it needs of each site"):
        check_job_strategy(check_job(job | {"privacy": privacy}))
