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


def test_a_server_optimizer_that_returns_the_moved_model_or_moves_none_is_refused():
    class Returning(Twice):
        def step(self, model, change, state, round):  # noqa: A002
            return model + change

    class Idle(Twice):
        def step(self, model, change, state, round):  # noqa: A002
            model = model + change

    with pytest.raises(HanseError, match=r"Returning: step returned ndarray; it is to write in place, as in model\["):
        hanse_learning.reduce(Returning(), np.zeros(3), [np.ones(3)])
    with pytest.raises(HanseError, match="a model that is as it was"):
        try_out(Idle())
    try_out(Twice())


@pytest.mark.parametrize("state", [["momentum"], {"momentum": "zero"}, None])
def test_a_server_optimizer_whose_state_is_no_mapping_of_numbers_is_refused(state):
    class Odd(Twice):
        @property
        def state(self):
            return state

    with pytest.raises(HanseError, match=r"server optimizer twice: state: .* is not a property that gives a mapping"):
        build_strategy(Odd())


@pytest.mark.parametrize("plugin", built_in(SERVER_OPTIMIZERS), ids=str)
def test_every_registered_server_optimizer_keeps_what_is_asked_of_one(plugin):
    try_out(plugin.load().model_validate({"name": plugin.name}))


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


@pytest.mark.parametrize("like", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_a_strategy_that_returns_its_result_is_refused_for_the_model_would_be_what_the_memory_held_before(like):
    class Returning(ReductionConfig):
        name: str = "returning"

        def combine(self, updates, weights, out):
            return np.mean(updates, axis=0)

    updates = [like(np.full(3, value)) for value in VALUES]
    with pytest.raises(HanseError, match=r"strategy returning: combine returned ndarray; .* as in out\[\.\.\.\] ="):
        hanse_learning.reduce(Returning(), like(np.zeros(3)), updates)


def test_a_strategy_that_leaves_a_column_out_is_refused_with_the_column():
    class Careless(ReductionConfig):
        name: str = "careless"

        def combine(self, updates, weights, out):
            out[1:] = np.mean(updates, axis=0)[1:]

    with pytest.raises(HanseError, match="strategy careless: combine has written no number into column 0 of 3"):
        hanse_learning.reduce(Careless(), np.zeros(3), [np.full(3, value) for value in VALUES])


def test_a_strategy_cannot_change_the_updates_of_its_caller():
    class Sorting(ReductionConfig):
        name: str = "sorting"

        def combine(self, updates, weights, out):
            updates[0][...] = 7
            out[...] = updates[0]

    updates = [np.full(3, value) for value in VALUES]
    with pytest.raises(ValueError, match="read-only"):
        hanse_learning.reduce(Sorting(), np.zeros(3), updates)
    assert updates[0].tolist() == [1.0] * 3


class _Plain(ReductionConfig):
    name: str = "plain"

    def combine(self, updates, weights, out):
        out[...] = updates[0]


class _Short(ReductionConfig):
    name: str = "short"

    def combine(self, rows): ...


class _Measuring(_Plain):
    def measure(self, updates):
        return {}


class _Counting(_Plain):
    def measure(self, updates):
        return len(updates)

    def reweigh(self, totals, weights, info):
        return weights


class _Least(_Plain):
    def least(self):
        return "3"


class _Needing(_Plain):
    def needs(self):
        return "normalizer"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (_Short, r"strategy short: _Short\.combine\(rows\) cannot be called as combine\(updates, weights, out\)"),
        (_Measuring, r"strategy plain: _Measuring has no reweigh\(totals, weights, info\)"),
        (_Counting, "_Counting.measure: 1 is not a mapping of names to arrays"),
        (_Least, r"strategy plain: least\(\): '3' is not a whole number from 1 on"),
        (_Needing, r"strategy plain: needs\(\): 'normalizer' is not a tuple of texts"),
    ],
)
def test_a_strategy_with_methods_of_another_form_is_refused_in_words(kind, said):
    with pytest.raises(HanseError, match=said):
        hanse_learning.reduce(kind(), np.zeros(3), [np.zeros(3)])


@pytest.mark.parametrize("given", ["median", Twice])
def test_a_name_or_a_class_in_place_of_settings_is_refused_with_what_is_meant(given):
    with pytest.raises(HanseError, match=r"strategy: .* is not a job's section, or settings such as MedianConfig\(\)"):
        hanse_learning.reduce(given, np.zeros(3), [np.zeros(3)])


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
        ("changes", "left as they came"),
        ("leaves out", "strategy bad: combine has written no number into column 699 of 700"),
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
