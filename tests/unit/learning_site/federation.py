"""Sites that train by an algorithm, and a strategy over their updates, round after round, without a hub."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hanse_learning.config import check_model, check_train, state_rules
from hanse_learning.site.algorithms import train_round
from hanse_learning.site.entries import entries_of, freeze
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.session import Session, Trained

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
        self.sent: dict[int, dict[str, torch.Tensor]] = {}

    def session(self, site: int, module: torch.nn.Module, *, seed: int | None = None) -> Session:
        module.load_state_dict(self.first.state_dict() | self.model | self.local[site])
        entries = entries_of(module, {}, self.rules, self.round)
        freeze(module, entries)
        return Session(
            module=module, data=self.parts[site], config=self.config, problem=PROBLEM, round=self.round,
            seed=SEED + self.round if seed is None else seed, local=self.own, kept=self.kept[site],
            extras={} if self.control is None else {"control": self.control},
        )  # fmt: skip

    def train(self, session: Session) -> Trained:
        """What a site does in a round."""
        return train_round(session)

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
            made = self.train(self.session(site, module))
            self.made.append(made)
            self.kept[site] = made.keep
            after = module.state_dict()
            self.sent[site] = {name: after[name].detach().clone() for name in self.model}
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


LOCAL = {"epochs": 2, "batch_size": 8, "optimizer": {"lr": 0.1}}
