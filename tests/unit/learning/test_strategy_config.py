"""The strategy section of a job: what is accepted, what is refused in which words, and that no numpy is loaded."""

import subprocess
import sys

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.server.config import check_strategy, state_names
from hanse_learning.server.strategy import build_strategy


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
        ({"optimizer": "adam"}, "optimizer"),
    ],
)
def test_a_wrong_section_is_refused_naming_the_field(section, named):
    with pytest.raises(HanseError, match=named) as caught:
        check_strategy(section)
    assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("name", ["none", "sgd", "adam", "yogi", "adagrad"])
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
