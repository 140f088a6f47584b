"""Ditto, FedRep, Per-FedAvg: models of a site's own."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch

from hanse_learning.config import check_model, check_train
from hanse_learning.site.algorithms import adapt
from hanse_learning.site.entries import entries_of, freeze
from hanse_learning.site.models import build
from hanse_learning.site.training import train
from unit.learning_site.federation import LOCAL, MODEL, PROBLEM, SEED, Federation, apart, clouds, split


def personal(sites: Federation, site: int) -> dict[str, np.ndarray]:
    return dict(sites.kept[site]["personal"])


def test_ditto_without_pull_trains_its_personal_model_alone_and_with_it_does_not() -> None:
    parts = split(clouds(), by_class=False)
    alone = Federation([parts[1]], LOCAL).run(3)
    for pull, equal in ((0.0, True), (0.5, False)):
        sites = Federation(parts, LOCAL | {"algorithm": {"name": "ditto", "pull": pull}})
        sites.run(3)
        assert (apart(personal(sites, 1), alone) < 1e-12) == equal


def test_ditto_evaluates_the_personal_model() -> None:
    sites = Federation(split(clouds(), by_class=False), LOCAL | {"algorithm": "ditto"})
    sites.run(2)
    module = copy.deepcopy(sites.first)
    assert adapt(sites.session(3, module)) == ""
    assert apart({name: value.numpy() for name, value in module.state_dict().items()}, personal(sites, 3)) == 0


def test_fedrep_trains_head_and_body_in_turn_and_sends_the_body_alone() -> None:
    sites = Federation(split(clouds(), by_class=True), LOCAL | {"algorithm": {"name": "fedrep", "head_epochs": 3}})
    assert sites.own == {"output.weight", "output.bias"}
    before = {name: value.clone() for name, value in sites.model.items()}
    sites.run(1)
    assert sites.model.keys() == {"hidden0.weight", "hidden0.bias"}
    assert apart(sites.run(0), {name: value.numpy() for name, value in before.items()}) > 0
    heads = [local["output.weight"].numpy() for local in sites.local]
    assert not np.array_equal(heads[0], heads[1])
    # A site's body steps leave its head as the head's epochs have made it.
    module = copy.deepcopy(sites.first)
    freeze(module, entries_of(module, {}, sites.rules))
    for name in ("hidden0.weight", "hidden0.bias"):
        module.get_parameter(name).requires_grad_(False)
    head = check_train({"epochs": 3, "batch_size": 8, "optimizer": {"lr": 0.1}})
    train(module, sites.parts[0], head, PROBLEM, SEED + 2, lambda _done, _text: None)
    assert np.array_equal(module.get_parameter("output.weight").detach().numpy(), heads[0])


def test_per_fedavg_with_the_hessian_follows_the_gradient_of_the_adapted_loss() -> None:
    data, alpha = clouds(24), 0.3
    train = {"steps": 1, "batch_size": "all", "optimizer": {"lr": 1.0}}
    found = {}
    for variant in ("fo", "hf"):
        sites = Federation([data], train | {"algorithm": {"name": "per_fedavg", "alpha": alpha, "variant": variant}})
        before = {name: value.clone() for name, value in sites.model.items()}
        after = sites.run(1)
        found[variant] = {name: before[name].numpy() - after[name] for name in before}
    module = build(check_model(MODEL), PROBLEM, seed=1)
    x, y = torch.from_numpy(data.x).double(), torch.from_numpy(data.y)

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(torch.func.functional_call(module, parameters, (x,)), y)

    start = {name: value.detach() for name, value in module.named_parameters()}
    inner: Callable[..., dict[str, torch.Tensor]] = torch.func.grad(loss)

    def adapted(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        step = inner(parameters)
        return loss({name: value - alpha * step[name] for name, value in parameters.items()})

    exact = {name: value.detach().numpy() for name, value in torch.func.grad(adapted)(start).items()}
    assert apart(found["hf"], exact) < 1e-7
    assert apart(found["fo"], exact) > 1e-4
