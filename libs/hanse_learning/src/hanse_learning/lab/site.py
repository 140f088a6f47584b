"""A site in memory: what a datapod's worker does with files, done with arrays, by the same trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hanse_fabric.names import derive_seed
from hanse_fabric.tensors.layout import Layout
from hanse_learning.config import AnyModel, TrainConfig, state_rules
from hanse_learning.lab.attacks import poisoned, sent
from hanse_learning.lab.experiment import AttackConfig
from hanse_learning.site.algorithms import adapt, train_round
from hanse_learning.site.entries import Entries, arrays_of, entries_of, freeze, load, update_of
from hanse_learning.site.evaluation import evaluate
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.sums import Sums

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all sites of a cell have in common."""

    model: AnyModel
    train: TrainConfig
    problem: Problem
    seed: int
    wanted: frozenset[str]

    def entries(self, round_number: int) -> Entries:
        """The entries of the model in a round."""
        module = build(self.model, self.problem, seed=0)
        return entries_of(module, self.model.buffers, state_rules(self.model, self.train), round_number)

    def first_model(self) -> dict[str, np.ndarray]:
        """What the run begins with."""
        module = build(self.model, self.problem, seed=derive_seed(self.seed, "initialize"))
        return _only(arrays_of(module), self.entries(1).travelling)

    def personal(self) -> bool:
        """Whether sites use models of their own."""
        return bool(self.entries(1).local.entries) or self.train.algorithm.personal()


@dataclass(frozen=True, slots=True)
class Given:
    """What a site gets in a round; `entries` are the round's."""

    round: int
    model: Arrays
    entries: Entries
    extras: Mapping[str, Arrays] = field(default_factory=dict)
    sums: Sums | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What it sends."""

    update: dict[str, np.ndarray]
    examples: int
    made: Trained


class LabSite:
    """One site, with what it keeps from round to round."""

    def __init__(self, name: str, setting: Setting, data: Examples, attack: AttackConfig | None = None) -> None:
        self.name = name
        self._setting = setting
        self._attack = attack
        self._data = data if attack is None else poisoned(data, attack, setting.problem.outputs)
        self._module = build(setting.model, setting.problem, seed=derive_seed(setting.seed, 1, name, "train"))
        self._local = arrays_of(self._module)
        self._kept: dict[str, dict[str, np.ndarray]] = {}

    def train(self, given: Given) -> Answer:
        """One round.

        Raises:
            HanseError: as `train_round`.
        """
        session = self._receive(given, "train")
        made = train_round(session)
        self._module.zero_grad(set_to_none=True)
        trained = arrays_of(self._module)
        self._kept = made.keep
        self._local = _only(trained, given.entries.local)
        layout = given.entries.travelling
        update = update_of(given.model, trained, layout, consume=True)
        if self._attack is not None:
            update = sent(update, self._attack, layout)
        return Answer(update, len(self._data), made)

    def evaluate(self, given: Given, test: Examples) -> dict[str, float]:
        """The metrics of the received model, or of the one that the site would use.

        Raises:
            HanseError: TRAINING_FAILED where there is no finite loss.
        """
        adapt(self._receive(given, "evaluate"))
        return evaluate(self._module, test, self._setting.problem)

    def _receive(self, given: Given, step: str) -> Session:
        setting = self._setting
        load(self._module, given.model, given.entries.travelling)
        if given.entries.local.entries:
            load(self._module, _only(self._local, given.entries.local), given.entries.local)
        freeze(self._module, given.entries)
        session = Session(
            module=self._module, data=self._data, config=setting.train, problem=setting.problem,
            seed=derive_seed(setting.seed, given.round, self.name, step), round=given.round,
            local=frozenset(entry.name for entry in given.entries.local), kept=self._kept, extras=given.extras,
            wanted=setting.wanted,
        )  # fmt: skip
        return session if given.sums is None else replace(session, sums=given.sums)


def _only(arrays: Arrays, layout: Layout) -> dict[str, np.ndarray]:
    return {entry.name: arrays[entry.name] for entry in layout}
