"""Local terms and losses by the papers' formulas, differentiated by torch from their text: two steps, in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hanse_learning.config import check_model, check_train
from hanse_learning.site.algorithms import train_round
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.losses import loss_function
from hanse_learning.site.models import build
from hanse_learning.site.session import Session, Trained

PROBLEM = Problem((6,), 4, "classification")
MODEL = check_model({"name": "mlp", "hidden": [8], "activation": "tanh", "dtype": "float64"})
RATE = 0.2
Arrays = dict[str, np.ndarray]
Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]


def data() -> Examples:
    generator = np.random.default_rng(4)
    return Examples(generator.normal(size=(20, 6)).astype(np.float32), np.arange(20) % 4)


def model(seed: int) -> nn.Module:
    return build(MODEL, PROBLEM, seed=seed)


def arrays(module: nn.Module) -> Arrays:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def trained(algorithm: dict[str, Any], kept: dict[str, Arrays]) -> tuple[Arrays, Trained]:
    """Two steps over all examples, by the site's code, in the second round."""
    module = model(1)
    config = check_train({"algorithm": algorithm, "steps": 2, "batch_size": "all", "optimizer": {"lr": RATE}})
    made = train_round(Session(module=module, data=data(), config=config, problem=PROBLEM, seed=3, round=2, kept=kept))
    return arrays(module), made


def descended(module: nn.Module, objective: Objective) -> Arrays:
    """The same along the gradient of an objective."""
    x, y = torch.from_numpy(data().x).double(), torch.from_numpy(data().y)
    for _ in range(2):
        module.zero_grad()
        objective(module, x, y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(RATE * parameter.grad)
    return arrays(module)


def apart(one: Arrays, other: Arrays) -> float:
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def plain(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(module(x), y)


def pulled(strength: float, anchor: nn.Module) -> Objective:
    """L(w) + strength / 2 |w - anchor|^2."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(module.parameters(), anchor.parameters(), strict=True)
        return plain(module, x, y) + strength / 2 * torch.stack([((w - a.detach()) ** 2).sum() for w, a in pairs]).sum()

    return objective


def test_fedprox_descends_the_loss_and_half_mu_times_the_squared_distance() -> None:
    made, _ = trained({"name": "fedprox", "mu": 1.5}, {})
    assert apart(made, descended(model(1), pulled(1.5, model(1)))) < 1e-12
    assert apart(made, descended(model(1), pulled(3.0, model(1)))) > 1e-4  # the control


def test_dittos_personal_model_is_pulled_from_where_it_was_to_what_was_received() -> None:
    _, told = trained({"name": "ditto", "pull": 1.5}, {"personal": arrays(model(2))})
    assert apart(told.keep["personal"], descended(model(2), pulled(1.5, model(1)))) < 1e-12
    assert apart(told.keep["personal"], descended(model(2), pulled(1.5, model(2)))) > 1e-4  # the control


def test_feddyn_descends_the_loss_with_its_last_gradient_and_the_pull() -> None:
    last = model(2)  # any values
    pull = pulled(0.7, model(1))

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        pairs = zip(module.parameters(), last.parameters(), strict=True)
        return pull(module, x, y) - torch.stack([(g.detach() * w).sum() for w, g in pairs]).sum()

    made, _ = trained({"name": "feddyn", "alpha": 0.7}, {"gradient": arrays(last)})
    assert apart(made, descended(model(1), objective)) < 1e-12
    assert apart(made, descended(model(1), pull)) > 1e-4  # the control


def test_moon_descends_the_loss_and_mu_times_the_contrast_of_representations() -> None:
    received, former, mu, temperature = model(1), model(2), 2.0, 0.5

    def representation(module: nn.Module, x: Tensor) -> Tensor:
        return torch.tanh(x @ module.get_parameter("hidden0.weight").T + module.get_parameter("hidden0.bias"))

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        own = representation(module, x)
        near, far = (
            torch.exp((own * z).sum(1) / (own.norm(dim=1) * z.norm(dim=1)) / temperature)
            for z in (representation(received, x).detach(), representation(former, x).detach())
        )
        return plain(module, x, y) - mu * torch.log(near / (near + far)).mean()

    made, told = trained({"name": "moon", "mu": mu, "temperature": temperature}, {"former": arrays(former)})
    assert apart(made, descended(copy.deepcopy(received), objective)) < 1e-12
    assert apart(made, descended(copy.deepcopy(received), plain)) > 1e-4  # the control
    assert apart(told.keep["former"], made) == 0


def logits_of(classes: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(9).normal(size=(30, classes)) + 0.3)


@pytest.mark.parametrize("gamma", [0.5, 2.0, 5.0])
def test_focal_loss_is_the_papers(gamma: float) -> None:
    logits, labels = logits_of(4), torch.arange(30) % 4
    p = torch.softmax(logits, 1)[torch.arange(30), labels]
    measured = loss_function(PROBLEM, check_train({"loss": {"name": "focal", "gamma": gamma}}))(logits, labels)
    assert float(measured) == pytest.approx(float((-((1 - p) ** gamma) * p.log()).mean()), rel=1e-12)
    assert float(measured) != pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-3)


def test_binary_loss_is_cross_entropy_of_the_logits_sigmoid() -> None:
    logits, labels = logits_of(1), torch.arange(30) % 2
    binary = loss_function(Problem((6,), 1, "classification"), check_train({"loss": "binary"}))
    expected = nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.double())
    assert float(binary(logits, labels)) == pytest.approx(float(expected), rel=1e-12)
    assert float(binary(-logits, labels)) != pytest.approx(float(expected), rel=1e-3)
