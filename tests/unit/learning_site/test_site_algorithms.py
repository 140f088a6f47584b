"""Equalities between site algorithms, in float64 to rounding, each with a negative control that breaks it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from hanse_learning import reduce
from hanse_learning.config import ALL_EXAMPLES, check_model, check_train, state_rules
from hanse_learning.site.algorithms import adapt, train_round
from hanse_learning.site.algorithms.accumulation import step_weight
from hanse_learning.site.entries import entries_of, freeze
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.training import train

PROBLEM = Problem((6,), 4, "classification")
MODEL = {"name": "mlp", "hidden": [8], "activation": "tanh", "dtype": "float64"}
SEED = 11


def clouds(count: int = 96, seed: int = 0) -> Examples:
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 4
    x = generator.normal(size=(count, 6)) + 1.5 * np.eye(4, 6)[y]
    return Examples(x.astype(np.float32), y)


def split(data: Examples, *, by_class: bool) -> list[Examples]:
    order = np.argsort(data.y, kind="stable") if by_class else np.arange(len(data))
    return [data.take(part) for part in np.array_split(order, 4)]


class Federation:
    """Sites in one process, each with what it keeps; the server takes the mean of what they send."""

    def __init__(
        self, parts: Sequence[Examples], train: dict[str, Any], *, model: dict[str, Any] | None = None, seed: int = 1
    ) -> None:
        self.config = check_train(train)
        self.model_config = check_model(model or MODEL)
        self.parts = list(parts)
        self.first = build(self.model_config, PROBLEM, seed=seed)
        self.module = copy.deepcopy(self.first)
        self.rules = state_rules(self.model_config, self.config)
        self.kept: list[dict[str, dict[str, np.ndarray]]] = [{} for _ in parts]
        self.local: list[dict[str, torch.Tensor]] = [{} for _ in parts]
        self.control: dict[str, np.ndarray] | None = None
        self.round = 0
        entries = entries_of(self.first, {}, self.rules)
        self.own = frozenset(entry.name for entry in entries.local)
        self.model = {k: v.clone() for k, v in self.first.state_dict().items() if k not in self.own}
        self.made: list[Trained] = []

    def session(self, site: int, module: torch.nn.Module, *, seed: int | None = None) -> Session:
        module.load_state_dict(self.first.state_dict() | self.model | self.local[site])
        entries = entries_of(module, {}, self.rules, self.round)
        freeze(module, entries)
        return Session(
            module=module, data=self.parts[site], config=self.config, problem=PROBLEM, round=self.round,
            seed=SEED + self.round if seed is None else seed, local=self.own, kept=self.kept[site],
            extras={} if self.control is None else {"control": self.control},
        )  # fmt: skip

    def step(self, *, weights: Sequence[float] | None = None, sites: Sequence[int] | None = None) -> None:
        """One round; weights by examples unless others are given."""
        self.round += 1
        taking = range(len(self.parts)) if sites is None else sites
        shares = np.array(weights or [float(len(self.parts[site])) for site in taking])
        shares /= shares.sum()
        total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in self.model.items()}
        changes: list[dict[str, np.ndarray]] = []
        self.made = []
        for site, share in zip(taking, shares, strict=True):
            module = self.module
            made = train_round(self.session(site, module))
            self.made.append(made)
            self.kept[site] = made.keep
            after = module.state_dict()
            self.local[site] = {name: after[name].clone() for name in self.own}
            for name in self.model:
                total[name] += float(share) * (after[name] - self.model[name])
            if "control" in made.extras:
                changes.append(made.extras["control"])
        self.model = {name: value + total[name].to(value.dtype) for name, value in self.model.items()}
        if changes:
            before = self.control or {name: np.zeros_like(array) for name, array in changes[0].items()}
            self.control = {
                name: before[name] + sum(change[name] for change in changes) / len(self.parts) for name in before
            }

    def run(self, rounds: int, **options: Any) -> dict[str, np.ndarray]:
        for _ in range(rounds):
            self.step(**options)
        return {name: value.numpy() for name, value in self.model.items()}


def apart(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def descended(
    data: Examples, rounds: int, lr: float, *, momentum: float = 0.0, decay: float = 0.0, batches: Any = None
) -> dict[str, np.ndarray]:
    """Centralized SGD as torch.optim does it, over all examples or over given batches of indices."""
    module = build(check_model(MODEL), PROBLEM, seed=1)
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=momentum, weight_decay=decay)
    x, y = torch.from_numpy(data.x).double(), torch.from_numpy(data.y)
    for step in range(rounds):
        chosen = slice(None) if batches is None else batches[step]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x[chosen]), y[chosen]).backward()
        optimizer.step()
    return {name: value.numpy() for name, value in module.state_dict().items()}


SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.001, "across_rounds": True}


@pytest.mark.parametrize("by_class", [False, True])
def test_fedfgd_equals_centralized_full_batch_training_over_100_iterations(by_class: bool) -> None:
    data = clouds()
    sites = Federation(split(data, by_class=by_class), {"algorithm": "fedfgd", "optimizer": SGD})
    pooled = descended(data, 100, 0.1, momentum=0.9, decay=0.001)
    assert apart(sites.run(100), pooled) < 1e-9


@pytest.mark.parametrize(
    ("train", "options"),
    [
        ({"algorithm": "fedfgd", "optimizer": SGD | {"across_rounds": False}}, {}),
        ({"epochs": 2, "batch_size": "all", "optimizer": SGD}, {}),
        ({"algorithm": "fedfgd", "optimizer": SGD}, {"weights": [3.0, 1.0, 1.0, 1.0]}),
    ],
)
def test_fedfgd_with_momentum_anew_or_two_steps_or_other_weights_does_not(
    train: dict[str, Any], options: dict[str, Any]
) -> None:
    data = clouds()
    sites = Federation(split(data, by_class=True), train)
    assert apart(sites.run(20, **options), descended(data, 20, 0.1, momentum=0.9, decay=0.001)) > 1e-4


def test_fedfgd_with_uneven_sites_and_a_falling_rate_equals_centralized_training() -> None:
    data = clouds()
    parts = [data.take(part) for part in np.split(np.arange(len(data)), [3, 20, 21])]
    schedule = {"factor": 0.5, "every_rounds": 4}
    sites = Federation(parts, {"algorithm": "fedfgd", "optimizer": SGD, "schedule": schedule})
    module = build(check_model(MODEL), PROBLEM, seed=1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.001)
    falling = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    x, y = torch.from_numpy(data.x).double(), torch.from_numpy(data.y)
    for _ in range(12):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        falling.step()
    pooled = {name: value.numpy() for name, value in module.state_dict().items()}
    assert apart(sites.run(12), pooled) < 1e-11


@pytest.mark.parametrize(("cuts", "equal"), [([24, 48, 72], True), ([40, 60, 70], False)])
def test_fedsmb_equals_mini_batch_training_where_the_batch_divides_equal_sites(cuts: list[int], equal: bool) -> None:
    data = clouds()
    parts = np.split(np.arange(len(data)), cuts)
    sites = Federation(
        [data.take(part) for part in parts], {"algorithm": "fedsmb", "batch_size": 8, "optimizer": {"lr": 0.1}}
    )
    batches = []
    for number in range(1, 16):
        drawn = []
        for part in parts:
            order = torch.randperm(len(part), generator=torch.Generator().manual_seed(SEED + number))
            drawn.append(part[order[:8].numpy()])
        batches.append(np.concatenate(drawn))
    pooled = descended(data, 15, 0.1, batches=batches)
    distance = apart(sites.run(15), pooled)
    assert (distance < 1e-11) == equal


def test_fedavg_of_one_epoch_over_all_examples_is_fedsgd() -> None:
    parts = split(clouds(), by_class=True)
    one = Federation(parts, {"epochs": 1, "batch_size": "all"}).run(5)
    assert apart(one, Federation(parts, {"algorithm": "fedsgd"}).run(5)) == 0
    assert apart(one, Federation(parts, {"epochs": 1, "batch_size": 8}).run(5)) > 1e-4


LOCAL = {"epochs": 2, "batch_size": 8, "optimizer": {"lr": 0.1}}


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ({"name": "fedprox", "mu": 0.0}, {"name": "fedprox", "mu": 0.5}),
        ({"name": "per_fedavg", "alpha": 0.0, "variant": "fo"}, {"name": "per_fedavg", "alpha": 0.1}),
        (
            {"name": "per_fedavg", "alpha": 0.0, "variant": "hf"},
            {"name": "per_fedavg", "alpha": 0.1, "variant": "hf"},
        ),
        ({"name": "moon", "mu": 0.0}, {"name": "moon", "mu": 1.0}),
        ({"name": "ditto", "pull": 0.7}, None),
    ],
)
def test_without_its_term_an_algorithm_is_fedavg_to_the_bit_and_with_it_is_not(
    same: dict[str, Any], other: dict[str, Any] | None
) -> None:
    parts = split(clouds(), by_class=True)
    plain = Federation(parts, LOCAL).run(3)
    assert apart(Federation(parts, LOCAL | {"algorithm": same}).run(3), plain) == 0
    if other is not None:
        assert apart(Federation(parts, LOCAL | {"algorithm": other}).run(3), plain) > 1e-5


@pytest.mark.parametrize("option", ["gradient", "drift"])
def test_scaffold_with_identical_sites_is_fedavg_and_with_others_is_not(option: str) -> None:
    train = {"epochs": 2, "batch_size": "all", "optimizer": {"lr": 0.1, "weight_decay": 0.01}}
    scaffold = train | {"algorithm": {"name": "scaffold", "option": option}}
    same = [clouds()] * 3
    assert apart(Federation(same, scaffold).run(5), Federation(same, train).run(5)) < 1e-13
    parts = split(clouds(), by_class=True)
    assert apart(Federation(parts, scaffold).run(5), Federation(parts, train).run(5)) > 1e-4


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffolds_drift_variate_of_one_step_is_the_gradient(momentum: float) -> None:
    train = {"steps": 1, "batch_size": "all", "optimizer": {"lr": 0.1, "momentum": momentum}}
    found = []
    for option in ("gradient", "drift"):
        sites = Federation(
            split(clouds(), by_class=True), train | {"algorithm": {"name": "scaffold", "option": option}}
        )
        sites.run(3)
        found.append(sites.kept[2]["control"])
    assert apart(*found) < 1e-12


def test_scaffolds_server_variate_stays_the_mean_of_the_sites() -> None:
    sites = Federation(split(clouds(), by_class=True), LOCAL | {"algorithm": "scaffold"})
    for chosen in ([0, 1, 2, 3], [0, 2], [1, 3], [2]):
        sites.step(sites=chosen)
        assert sites.control is not None
        mean = {name: sum(kept["control"][name] for kept in sites.kept if kept) / 4 for name in sites.control}
        assert apart(sites.control, mean) < 1e-13


def test_scaffold_takes_the_drift_out_of_local_steps() -> None:
    """Many local steps at one-class sites lead away from the pooled optimum; corrected ones do not, as far."""
    data = clouds()
    parts = split(data, by_class=True)
    steps = {"steps": 20, "batch_size": "all", "optimizer": {"lr": 0.1}}

    def gradient_left(sites: Federation, rounds: int) -> float:
        sites.run(rounds)
        module = copy.deepcopy(sites.first)
        module.load_state_dict(sites.model)
        x, y = torch.from_numpy(data.x).double(), torch.from_numpy(data.y)
        torch.nn.functional.cross_entropy(module(x), y).backward()
        return float(torch.cat([parameter.grad.flatten() for parameter in module.parameters()]).norm())

    model = {"name": "logistic", "dtype": "float64"}
    corrected = gradient_left(Federation(parts, steps | {"algorithm": "scaffold"}, model=model), 30)
    plain = gradient_left(Federation(parts, steps, model=model), 30)
    assert corrected < plain / 5


def test_feddyn_keeps_what_its_site_was_pulled_by() -> None:
    train = {"steps": 1, "batch_size": "all", "optimizer": {"lr": 0.1}}
    sites = Federation(split(clouds(), by_class=True), train | {"algorithm": {"name": "feddyn", "alpha": 0.5}})
    before = {name: value.numpy().copy() for name, value in sites.model.items()}
    plain = Federation(split(clouds(), by_class=True), train)
    sites.step(sites=[1])
    plain.step(sites=[1])
    after = {name: value.numpy() for name, value in sites.model.items()}
    # The first step begins at the received model and without a last gradient: a plain one.
    assert apart(after, {name: value.numpy() for name, value in plain.model.items()}) == 0
    expected = {name: -0.5 * (after[name] - before[name]) for name in before}
    assert apart(sites.kept[1]["gradient"], expected) < 1e-15
    sites.step(sites=[1])
    plain.step(sites=[1])
    assert apart(sites.run(0), plain.run(0)) == pytest.approx(
        0.1 * max(float(np.abs(value).max()) for value in expected.values()), rel=1e-9
    )


@pytest.mark.parametrize(("alpha_at_server", "reaches"), [(0.2, True), (None, False)])
def test_feddyns_two_halves_lead_one_class_sites_to_the_pooled_optimum(
    alpha_at_server: float | None, reaches: bool
) -> None:
    """Where nothing moves any more, the pooled gradient is zero: not so for many local steps of plain averaging."""
    data = clouds()
    train: dict[str, Any] = {"steps": 30, "batch_size": "all", "optimizer": {"lr": 0.2, "weight_decay": 0.05}}
    if alpha_at_server is not None:
        train["algorithm"] = {"name": "feddyn", "alpha": alpha_at_server}
    sites = Federation(split(data, by_class=True), train, model={"name": "logistic", "dtype": "float64"})
    strategy = {} if alpha_at_server is None else {"optimizer": {"name": "feddyn", "alpha": alpha_at_server}}
    state = None
    for _ in range(40):
        before = {name: value.numpy() for name, value in sites.model.items()}
        updates = []
        for site in range(4):
            sites.model = {name: torch.from_numpy(array.copy()) for name, array in before.items()}
            sites.step(sites=[site])
            sites.round -= 1
            updates.append({name: value.numpy() - before[name] for name, value in sites.model.items()})
        sites.round += 1
        after, state = reduce(strategy, before, updates, None, state)
        sites.model = {name: torch.from_numpy(np.array(array)) for name, array in dict(after).items()}
    module = copy.deepcopy(sites.first)
    module.load_state_dict(sites.model)
    x, y = torch.from_numpy(data.x).double(), torch.from_numpy(data.y)
    torch.nn.functional.cross_entropy(module(x), y).backward()
    left = [
        parameter.grad + 0.05 * parameter.detach() for parameter in module.parameters() if parameter.grad is not None
    ]
    assert (float(torch.cat([each.flatten() for each in left]).norm()) < 1e-3) == reaches


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


def test_accumulated_steps_have_the_weights_of_the_paper() -> None:
    assert [step_weight(step, 5) for step in range(1, 6)] == [5, 2.5, 2, 1.5, 1]
    assert [step_weight(step, 3) for step in range(1, 4)] == [3, 1.5, 1]
    assert [step_weight(step, 2) for step in range(1, 3)] == [2, 1]
    assert step_weight(1, 1) == 1
    assert sum(step_weight(step, 100) for step in range(1, 101)) == pytest.approx(2624.5)


def test_weighted_accumulation_of_one_step_is_fedsmb_and_of_three_the_weighted_sum() -> None:
    parts = [clouds(24)]
    one = {"steps": 1, "batch_size": 8}
    plain = Federation(parts, one).run(2)
    assert apart(Federation(parts, one | {"algorithm": "weighted_accumulation"}).run(2), plain) < 1e-15
    positions = [Federation(parts, {"steps": steps, "batch_size": 8}).run(1) for steps in (1, 2, 3)]
    begun = {name: value.numpy() for name, value in Federation(parts, one).first.state_dict().items()}
    w1, w2, w3 = positions
    expected = {
        name: begun[name] + 3 * (w1[name] - begun[name]) + 1.5 * (w2[name] - w1[name]) + (w3[name] - w2[name])
        for name in begun
    }
    train = {"steps": 3, "batch_size": 8, "algorithm": "weighted_accumulation"}
    assert apart(Federation(parts, train).run(1), expected) < 1e-14


@pytest.mark.parametrize(
    ("optimizer", "algorithm", "expected"),
    [
        ({"lr": 0.1}, "fedavg", 4.0),
        ({"lr": 0.1, "momentum": 0.5}, "fedavg", 1 + 1.5 + 1.75 + 1.875),
        ({"lr": 0.1}, {"name": "fedprox", "mu": 2.0}, 1 + 0.8 + 0.8**2 + 0.8**3),
        ({"lr": 0.1, "momentum": 0.5}, {"name": "fedprox", "mu": 2.0}, 1 + 1.3 + 1.19 + 0.897),
    ],
)
def test_the_normalizer_is_the_total_weight_of_the_steps_gradients(
    optimizer: dict[str, Any], algorithm: Any, expected: float
) -> None:
    sites = Federation([clouds()], {"steps": 4, "optimizer": optimizer, "algorithm": algorithm})
    sites.step()
    assert sites.made[0].info == {"steps": 4.0, "normalizer": pytest.approx(expected)}


def test_with_pull_and_momentum_the_normalizer_is_how_far_a_constant_gradient_has_moved_a_parameter() -> None:
    train = {"steps": 9, "optimizer": {"lr": 0.3, "momentum": 0.7}, "algorithm": {"name": "fedprox", "mu": 0.8}}
    for schedule, expected in ((None, 4.326365), ({"factor": 0.5, "every_steps": 3}, None)):
        sites = Federation([clouds()], train | {"schedule": schedule})
        sites.step()
        velocity, moved = 0.0, 0.0
        for step in range(9):
            velocity = 0.7 * velocity + 1.0 + 0.8 * moved
            moved -= 0.3 * (1.0 if schedule is None else 0.5 ** (step // 3)) * velocity
        assert sites.made[0].info["normalizer"] == pytest.approx(-moved / 0.3, rel=1e-12)
        assert expected is None or -moved / 0.3 == pytest.approx(expected, abs=1e-6)


def test_adam_has_no_normalizer_for_its_steps_are_no_sum_of_gradients() -> None:
    sites = Federation([clouds()], {"steps": 4, "optimizer": {"name": "adam", "lr": 0.01}})
    sites.step()
    assert sites.made[0].info == {"steps": 4.0}


def test_a_site_sends_the_received_models_loss_where_the_strategy_needs_it() -> None:
    sites = Federation([clouds()], LOCAL)
    module = copy.deepcopy(sites.first)
    session = sites.session(0, module)
    x, y = torch.from_numpy(session.data.x).double(), torch.from_numpy(session.data.y)
    expected = float(torch.nn.functional.cross_entropy(module(x), y).detach())
    wanting = Session(
        module=module, data=session.data, config=session.config, problem=PROBLEM, seed=1,
        wanted=frozenset({"first_loss"}),
    )  # fmt: skip
    assert train_round(wanting).info["first_loss"] == pytest.approx(expected, abs=1e-14)
    assert check_train({"batch_size": "all"}).batch_size == ALL_EXAMPLES
