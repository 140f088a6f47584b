"""The strategy section of a job: what is accepted, what is refused in which words, and that no numpy is loaded."""

import subprocess
import sys

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import STRATEGIES, built_in
from hanse_learning.config import TrainConfig
from hanse_learning.server.config import check_strategy, state_names
from hanse_learning.server.config.checks import check_job_strategy
from hanse_learning.server.reduction import Measured
from hanse_learning.server.strategy import build_strategy
from hanse_schemas.job import Job


def test_an_empty_section_is_federated_averaging():
    config = check_strategy({})
    assert (config.reduction.name, config.optimizer.name) == ("weighted_mean", "none")


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"reduction": {"name": "mean"}}, "reduction"),
        ({"reduction": {"name": "trimmed_mean", "fraction": 0.5}}, "fraction"),
        ({"optimizer": {"name": "adam", "rate": 0.1}}, "rate"),
        ({"optimizer": {"name": "sgd", "momentum": 1}}, "momentum"),
        ({"reducer": {}}, "reducer"),
        ({"optimizer": "adam"}, r"optimizer: a section .*, such as \{name: none\} \(given 'adam'\)"),
    ],
)
def test_a_wrong_section_is_refused_naming_the_field(section, named):
    with pytest.raises(HanseError, match=named) as caught:
        check_strategy(section)
    assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("name", ["none", "sgd", "adam", "yogi", "adagrad", "feddyn"])
def test_the_state_that_is_announced_is_the_state_that_the_optimizer_keeps(name):
    section = {"optimizer": {"name": name}}
    assert state_names(check_strategy(section)) == tuple(build_strategy(section).optimizer.state)


def test_checking_a_strategy_loads_neither_numpy_nor_torch():
    script = (
        "import sys; from hanse_learning.server.config import check_strategy; check_strategy({});"
        "print(sorted({'numpy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"reduction": {"name": "krum"}}, "byzantine"),
        ({"reduction": {"name": "krum", "byzantine": -1}}, "byzantine"),
        ({"reduction": {"name": "krum", "byzantine": 1, "keep": 2}}, "keep"),
        ({"reduction": {"name": "multi_krum", "byzantine": 1, "keep": 0}}, "keep"),
        ({"reduction": {"name": "bulyan"}}, "byzantine"),
        ({"reduction": {"name": "norm_clipping", "norm": 0}}, "norm"),
        ({"reduction": {"name": "geometric_median", "smoothing": 0}}, "smoothing"),
        ({"reduction": {"name": "qfedavg", "q": -1, "lr": 0.1}}, "q"),
        ({"reduction": {"name": "qfedavg", "q": 1}}, "lr"),
        ({"sign_mask": {"tau": 1.1}}, "tau"),
        ({"sign_mask": {"tau": -0.1}}, "tau"),
        ({"optimizer": {"name": "feddyn", "alpha": 0}}, "alpha"),
        ({"optimizer": {"name": "feddyn", "share": 1.5}}, "share"),
        ({"optimizer": {"name": "sgd", "flower_compat": True}}, "flower_compat"),
    ],
)
def test_impossible_parameters_are_refused_naming_them(section, named):
    with pytest.raises(HanseError, match=named):
        check_strategy(section)


EVERY_REDUCTION = [
    {"name": plugin.name, **example} for plugin in built_in(STRATEGIES) for example in plugin.load().examples
]


@pytest.mark.parametrize("reduction", EVERY_REDUCTION, ids=lambda reduction: reduction["name"])
def test_a_strategy_announces_the_measurements_that_its_reduction_makes(reduction):
    section = {"reduction": reduction}
    assert check_strategy(section).reduction.measures() == isinstance(build_strategy(section).reduction, Measured)


def test_a_strategy_announces_which_numbers_sites_must_send():
    def needed(reduction):
        return check_strategy({"reduction": reduction}).reduction.needs()

    assert needed({"name": "fednova"}) == ("normalizer",)
    assert needed({"name": "qfedavg", "q": 2, "lr": 0.1}) == ("first_loss",)
    assert needed({"name": "qfedavg", "q": 0, "lr": 0.1}) == needed({"name": "median"}) == ()


def _job(**more):
    return Job.model_validate({"rounds": 1, "model": {"name": "logistic"}, **more})


@pytest.mark.parametrize(
    ("job", "named"),
    [
        ({"strategy": {"reduction": {"name": "krum", "byzantine": 1}}, "participants": {"minimum": 4}},
         "minimum 4: krum takes 5 updates"),
        ({"strategy": {"reduction": {"name": "multi_krum", "byzantine": 2}}, "participants": {"minimum": 6}}, "es 7"),
        ({"strategy": {"reduction": {"name": "multi_krum", "byzantine": 0, "keep": 4}}, "participants": {"minimum": 3}},
         "keep"),
        ({"strategy": {"reduction": {"name": "bulyan", "byzantine": 1}}, "participants": {"minimum": 6}}, "es 7"),
        ({"strategy": {"optimizer": {"name": "feddyn"}}}, "two halves"),
        ({"strategy": {"reduction": {"name": "mean"}}}, "reduction"),
    ],
)  # fmt: skip
def test_a_strategy_that_the_job_cannot_keep_is_refused_when_it_is_submitted(job, named):
    with pytest.raises(HanseError, match=named) as caught:
        check_job_strategy(_job(**job))
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.hint


@pytest.mark.parametrize(
    "job",
    [
        {"strategy": {"reduction": {"name": "krum", "byzantine": 1}}, "participants": {"minimum": 5}},
        {"strategy": {"reduction": {"name": "bulyan", "byzantine": 1}}, "participants": {"minimum": 7}},
        {"strategy": {"reduction": {"name": "fednova"}, "sign_mask": {}, "optimizer": {"name": "yogi"}}},
    ],
)
def test_a_strategy_that_fits_the_job_is_accepted(job):
    check_job_strategy(_job(**job))


@pytest.mark.parametrize(
    ("algorithm", "strategy", "named"),
    [
        ({"name": "feddyn", "alpha": 0.1}, {}, "two halves"),
        ({"name": "feddyn", "alpha": 0.1}, {"optimizer": {"name": "feddyn", "alpha": 0.2}}, "alpha"),
        ({"name": "feddyn", "alpha": 0.1},
         {"optimizer": {"name": "feddyn", "alpha": 0.1}, "reduction": {"name": "median"}}, "median"),
        ({"name": "scaffold"}, {"reduction": {"name": "krum", "byzantine": 0}}, "krum"),
        ({"name": "scaffold"}, {"reduction": {"name": "fednova"}}, "fednova"),
        ({"name": "moon"}, {"reduction": {"name": "fednova"}}, "fednova"),
    ],
)  # fmt: skip
def test_a_strategy_that_does_not_go_with_the_algorithm_is_refused(algorithm, strategy, named, monkeypatch):
    from hanse_learning.server.config import checks

    monkeypatch.setattr(checks, "check_train", lambda train: TrainConfig.model_validate(train))
    with pytest.raises(HanseError, match=named):
        check_job_strategy(_job(train={"algorithm": algorithm}, strategy=strategy, participants={"minimum": 3}))


def test_fednova_is_refused_with_a_local_adam_whose_steps_have_no_normalizer():
    train = {"optimizer": {"name": "adam"}}
    with pytest.raises(HanseError, match=r"fednova with train\.optimizer adam, whose steps are no sums of gradients"):
        check_job_strategy(_job(train=train, strategy={"reduction": {"name": "fednova"}}))
    check_job_strategy(_job(train=train, strategy={"reduction": {"name": "median"}}))
