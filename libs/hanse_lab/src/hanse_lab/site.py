"""A site in memory: what a datapod's worker does with files, done with arrays, by the same trainer."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.names import derive_seed
from hanse_fabric.tensors.file import decode_tensors, encode_tensors
from hanse_fabric.tensors.layout import Layout, Rule
from hanse_lab.attacks import poisoned, sent
from hanse_lab.experiment import AttackConfig
from hanse_lab.meetings import Meetings
from hanse_lab.privacy import Spent, noise_source
from hanse_lab.sent_counts import SentCounts
from hanse_learning.codecs.at_site import read_model, site_codec
from hanse_learning.config import AnyModel, TrainConfig, state_rules
from hanse_learning.site.algorithms import adapt
from hanse_learning.site.entries import Entries, arrays_of, entries_of, freeze, load, update_of
from hanse_learning.site.evaluation import evaluate
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.models import build
from hanse_learning.site.private_round import made_private, train_with
from hanse_learning.site.private_terms import terms_of_work
from hanse_learning.site.session import Session
from hanse_learning.site.site_privacy import SitePrivacy, check_site_privacy
from hanse_learning.site.sums import Alone, Sums
from hanse_workflows.memory import Made

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all sites of a cell have in common.

    Attributes:
        counts: what they send.
        meetings: where sites sum in the middle of training; None where they do not.
        absent: probability of a site not to answer in a round.
        spent: what their noise costs.
    """

    model: AnyModel
    train: TrainConfig
    problem: Problem
    seed: int
    wanted: frozenset[str]
    counts: SentCounts
    meetings: Meetings | None = None
    absent: float = 0.0
    spent: Spent = field(default_factory=Spent)

    def entries(self, round_number: int) -> Entries:
        """The entries of the model in a round."""
        module = build(self.model, self.problem, seed=0)
        return entries_of(module, self.model.buffers, state_rules(self.model, self.train), round_number)

    def personal(self) -> bool:
        """Whether sites use models of their own."""
        return bool(self.entries(1).local.entries) or self.train.algorithm.personal()


class LabSite:
    """One site, with what it keeps from round to round. A `hanse_workflows.memory.MemorySite`."""

    def __init__(self, name: str, setting: Setting, data: Examples, attack: AttackConfig | None = None) -> None:
        self.name = name
        self._setting = setting
        self._attack = attack
        self._data = data if attack is None else poisoned(data, attack, setting.problem.outputs)
        self._module = build(setting.model, setting.problem, seed=derive_seed(setting.seed, 1, name, "train"))
        self._local = arrays_of(self._module)
        self._kept: dict[str, dict[str, np.ndarray]] = {}
        self._of_codecs: dict[str, dict[str, np.ndarray]] = {}

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        """See `MemorySite.work`.

        Raises:
            HanseError: as `train_with` and `made_private`; UNAVAILABLE where it is absent; INVALID_INPUT for a kind
                of task that the lab has not.
        """
        if task.kind is TaskKind.INITIALIZE:
            module = build(self._setting.model, self._setting.problem, seed=task.seed)
            layout = self._setting.entries(1).travelling
            return Made(encode_tensors(layout, _only(arrays_of(module), layout)))
        if task.kind is not TaskKind.TRAIN:
            raise invalid("task.kind", task.kind.value, "initialize or train: the lab measures by itself")
        if random.Random(derive_seed(task.seed, task.round, self.name, "absent")).random() < self._setting.absent:  # noqa: S311
            raise HanseError(ErrorCode.UNAVAILABLE, f"{self.name}: absent in round {task.round}")
        seat = None if self._setting.meetings is None else self._setting.meetings.seat(task.round, self.name)
        try:
            return self._train(task, objects, seat or Alone())
        except BaseException:
            if self._setting.meetings is not None:
                self._setting.meetings.withdraw(task.round)
            raise

    def _train(self, task: Task, objects: Mapping[str, bytes], sums: Sums) -> Made:
        model = read_model(objects["model"], task.config)[1]
        extras = {name: decode_tensors(data)[1] for name, data in objects.items() if name != "model"}
        entries = self._setting.entries(task.round)
        private = self._private(task, entries.travelling)
        source = noise_source(self._setting.seed, task.round, self.name)
        made = train_with(private, self._receive(task.round, model, entries, "train", extras, sums), source=source)
        self._module.zero_grad(set_to_none=True)
        trained = arrays_of(self._module)
        self._kept = made.keep
        self._local = _only(trained, entries.local)
        update = update_of(model, trained, entries.travelling, consume=True)
        if private is not None:
            update = made_private(update, entries.travelling, private, source=source)
        if self._attack is not None:
            update = sent(update, self._attack, entries.travelling)
        data, up = self._encoded(task, entries.travelling, update)
        beside = sum(_size(arrays) for arrays in made.extras.values())
        self._setting.counts.add(
            task.round, min(_size(model), len(objects["model"])) + up + 2 * beside, made.metrics,
            [update[entry.name] for entry in entries.travelling if entry.rule is Rule.PARAMETER],
        )  # fmt: skip
        layouts = {name: _of(entries.travelling, arrays) for name, arrays in made.extras.items()}
        return Made(
            data, len(self._data), dict(made.metrics), info=dict(made.info),
            extras={name: encode_tensors(layouts[name], arrays) for name, arrays in made.extras.items()},
        )  # fmt: skip

    def _private(self, task: Task, layout: Layout) -> SitePrivacy | None:
        """What the site does for privacy, as its budget would tell it."""
        if task.privacy is None:
            return None
        noise, told = terms_of_work(
            task.privacy, self.name, task.config, examples=len(self._data),
            coordinates=lambda: sum(entry.count for entry in layout),
        )  # fmt: skip
        self._setting.spent.charge(self.name, noise)
        return check_site_privacy({"privacy": told})

    def _encoded(self, task: Task, layout: Layout, update: Arrays) -> tuple[bytes, int]:
        """The update's bytes, and how many of them are counted: of plain arrays not the header. What the codecs leave
        out is kept, too."""
        codec = site_codec(task.config)
        if codec is None:
            return encode_tensors(layout, update), _size(update)
        data, self._of_codecs = codec.encoded(layout, update, self._of_codecs, seed=task.seed)
        return data, len(data)

    def evaluate(self, number: int, model: Arrays, test: Examples) -> dict[str, float]:
        """The metrics of a round's model, or of the one that the site would use.

        Raises:
            HanseError: TRAINING_FAILED where there is no finite loss.
        """
        adapt(self._receive(number, model, self._setting.entries(number), "evaluate", {}, Alone()))
        return evaluate(self._module, test, self._setting.problem)

    def _receive(
        self, number: int, model: Arrays, entries: Entries, step: str, extras: Mapping[str, Arrays], sums: Sums
    ) -> Session:
        setting = self._setting
        load(self._module, model, entries.travelling)
        if entries.local.entries:
            load(self._module, _only(self._local, entries.local), entries.local)
        freeze(self._module, entries)
        return Session(
            module=self._module, data=self._data, config=setting.train, problem=setting.problem,
            seed=derive_seed(setting.seed, number, self.name, step), round=number,
            local=frozenset(entry.name for entry in entries.local), kept=self._kept, extras=extras,
            wanted=setting.wanted, sums=sums,
        )  # fmt: skip


def _only(arrays: Arrays, layout: Layout) -> dict[str, np.ndarray]:
    return {entry.name: arrays[entry.name] for entry in layout}


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def _of(layout: Layout, arrays: Arrays) -> Layout:
    """The entries of these arrays in the model's layout."""
    return Layout.of(entry for entry in layout if entry.name in arrays)
