"""SCAFFOLD and FedDyn: what keeps the local steps of unlike sites from drifting apart."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from hanse_fabric.errors import HanseError
from hanse_learning import reduce
from hanse_learning.site.private_round import train_with
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.site_privacy import SitePrivacy
from hanse_privacy.noise.source import NoiseSource
from unit.learning_site.federation import LOCAL, Federation, apart, clouds, split


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
    steps = {"steps": 10, "batch_size": "all", "optimizer": {"lr": 0.4}}

    def gradient_left(sites: Federation, rounds: int) -> float:
        sites.run(rounds)
        module = copy.deepcopy(sites.first)
        module.load_state_dict(sites.model)
        x, y = torch.from_numpy(data.x).double(), torch.from_numpy(data.y)
        torch.nn.functional.cross_entropy(module(x), y).backward()
        return float(torch.cat([parameter.grad.flatten() for parameter in module.parameters()]).norm())

    model = {"name": "logistic", "dtype": "float64"}
    corrected = gradient_left(Federation(parts, steps | {"algorithm": "scaffold"}, model=model), 14)
    plain = gradient_left(Federation(parts, steps, model=model), 14)
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


@pytest.mark.parametrize(("alpha_at_server", "reaches"), [(0.3, True), (None, False)])
def test_feddyns_two_halves_lead_one_class_sites_to_the_pooled_optimum(
    alpha_at_server: float | None, reaches: bool
) -> None:
    """Where nothing moves any more, the pooled gradient is zero: not so for many local steps of plain averaging."""
    data = clouds()
    train: dict[str, Any] = {"steps": 10, "batch_size": "all", "optimizer": {"lr": 0.2, "weight_decay": 0.05}}
    if alpha_at_server is not None:
        train["algorithm"] = {"name": "feddyn", "alpha": alpha_at_server}
    sites = Federation(split(data, by_class=True), train, model={"name": "logistic", "dtype": "float64"})
    strategy = {} if alpha_at_server is None else {"optimizer": {"name": "feddyn", "alpha": alpha_at_server}}
    state = None
    for _ in range(28):
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


class Private(Federation):
    """The same with dp_sgd at the sites: batches of a quarter of the examples, or all of them."""

    def __init__(self, *given: Any, terms: dict[str, Any], **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.terms = SitePrivacy(mechanism="dp_sgd", **terms)

    def train(self, session: Session) -> Trained:
        return train_with(self.terms, session, source=NoiseSource(session.seed.to_bytes(32, "little")))


SCAFFOLD: dict[str, Any] = {"algorithm": "scaffold", "optimizer": {"lr": 0.1}}
NOISY = {"clip": 1.0, "scale": 0.5, "rate": 0.25, "batch": 6, "steps": 4}


def test_private_scaffold_of_whole_batches_without_noise_is_scaffold() -> None:
    parts = split(clouds(), by_class=True)
    quiet = {"clip": 1e4, "scale": 1e-6, "rate": 1.0, "batch": 24, "steps": 5}
    whole = SCAFFOLD | {"steps": 5, "batch_size": "all"}
    private = Private(parts, whole, terms=quiet).run(4)
    assert apart(private, Federation(parts, whole).run(4)) < 1e-5
    assert apart(private, Private(parts, whole | {"algorithm": "fedavg"}, terms=quiet).run(4)) > 1e-3


def test_a_private_variate_is_made_of_what_was_released() -> None:
    """Of the update, and of variates that were released before: no noise is paid for it."""
    sites = Private(split(clouds(), by_class=True), SCAFFOLD, terms=NOISY)
    told: list[dict[str, Any]] = [{} for _ in sites.parts]
    for _ in range(3):
        before = {name: value.clone().numpy() for name, value in sites.model.items()}
        server = sites.control or dict.fromkeys(before, 0.0)
        sites.step()
        for site, made in enumerate(sites.made):
            own = told[site] or dict.fromkeys(before, 0.0)
            way = {name: (before[name] - sites.sent[site][name].numpy()) / (0.1 * 4) for name in before}
            found = {name: way[name] - server[name] for name in before}  # what is new of the variate
            assert apart(made.extras["control"], found) < 1e-9
            told[site] = {name: own[name] + found[name] for name in before}
            assert apart(sites.kept[site]["control by dp_sgd"], told[site]) < 1e-9


def test_variates_of_rounds_without_noise_are_not_used_in_private_ones() -> None:
    parts, fresh = split(clouds(), by_class=True), []
    for keep in (True, False):
        sites = Federation(parts, SCAFFOLD | {"steps": 4})
        sites.step()
        private = Private(parts, SCAFFOLD, terms=NOISY)
        private.model, private.control, private.round = sites.model, sites.control, sites.round
        private.kept = sites.kept if keep else private.kept
        private.step()
        fresh.append({name: value.numpy() for name, value in private.model.items()})
    assert apart(*fresh) == 0


@pytest.mark.parametrize(
    "odd",
    [
        {"algorithm": {"name": "scaffold", "option": "gradient"}},
        {"optimizer": {"lr": 0.1, "momentum": 0.9}},
        {"weights_average": 0.9},
    ],
)
def test_private_scaffold_of_more_than_noisy_gradients_is_refused_at_the_site(odd: dict[str, Any]) -> None:
    with pytest.raises(HanseError, match=next(iter(odd))):
        Private(split(clouds(), by_class=True), SCAFFOLD | odd, terms=NOISY).step()


def test_private_scaffold_is_refused_where_the_noise_would_be_added_to_the_update_alone() -> None:
    """As a hub that lies can ask it, by a placement whose noise comes with the masks: variates would have none."""
    with pytest.raises(HanseError, match=r"sigma: 0.0"):
        Private(split(clouds(), by_class=True), SCAFFOLD, terms=NOISY | {"scale": 0.0}).step()
