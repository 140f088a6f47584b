"""A cell, played: the workflow of its job in memory, measured as it goes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hanse_fabric.errors import HanseError
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages import Lineage
from hanse_fabric.tensors.file import decode_tensors
from hanse_lab.attacks import hostile
from hanse_lab.cells import Task, asked_of
from hanse_lab.data import shares_of
from hanse_lab.experiment import SMALLER_IS_BETTER
from hanse_lab.meetings import Meetings
from hanse_lab.privacy import noise_source
from hanse_lab.sent_counts import SentCounts
from hanse_lab.site import LabSite, Setting
from hanse_learning.config import FedTanConfig, check_model, check_train
from hanse_learning.server.config import check_strategy
from hanse_learning.site.examples import Examples
from hanse_schemas.job import Job
from hanse_workflows.attendance import sample
from hanse_workflows.memory import conduct


class CellOutcome(Frozen):
    """What came of a cell.

    Attributes:
        rounds: that were measured, ascending.
        metrics: by name, for each of them; over sites with models or tests of their own the mean.
        worst: the same for the site that is worst off, where sites differ.
            `validation accuracy` and the like are of the examples by which rows are chosen; `agreement` and `unmasked`
            of the signs of a round's updates (`SentCounts.agreement`); `pruned` of its sites' masks.
        sent: bytes of each round, from the first, up and down.
        messages: rounds of messages in each round.
        epsilon: that the site with the most has spent; None: there is no privacy.
        seconds: that it took.
        failed: why it ended early; empty where it did not.
    """

    rounds: tuple[int, ...]
    metrics: dict[str, tuple[float, ...]]
    worst: dict[str, tuple[float, ...]] = {}
    sent: tuple[int, ...]
    messages: tuple[int, ...]
    epsilon: float | None = None
    seconds: float
    failed: str = ""


def play(task: Task) -> CellOutcome:
    """Play a cell; the same outcome for the same task, but for `seconds`.

    Raises:
        HanseError: where data and partition do not fit. What diverges is an outcome.
    """
    began = time.monotonic()
    cell = _PlayedCell(task)
    failed = ""
    try:
        conduct(cell.job, {site.name: site for site in cell.sites}, told=cell.told, published=cell.measure,
            secret=cell.secret, sites_add_noise=True,
        )  # fmt: skip
    except HanseError as failure:  # also of a partition that leaves a strategy too few sites
        failed = failure.message
    return CellOutcome(
        rounds=tuple(cell.rounds), metrics=_columns(cell.measured), worst=_columns(cell.worst), sent=tuple(cell.sent),
        messages=tuple(cell.messages), epsilon=cell.epsilon(), seconds=time.monotonic() - began, failed=failed,
    )  # fmt: skip


class _PlayedCell:
    """The sites of a cell, and what was measured of it.

    Attributes:
        job: as the workflow is to conduct it: the sites that have examples, a version for each measurement.
    """

    def __init__(self, task: Task) -> None:
        shares = shares_of(task)
        train = check_train(task.job.train)
        bad = hostile(task.attack, task.sites, task.seed)
        names = {number: f"site{number:04d}" for number, share in enumerate(shares.train) if len(share)}
        self.job = _job(task, len(names))
        sums_within_rounds = isinstance(train.algorithm, FedTanConfig)
        strategy = check_strategy(task.job.strategy)
        self.setting = Setting(
            check_model(task.job.model), train, shares.problem, task.job.seed,
            frozenset(strategy.reduction.needs()) & {"first_loss"},
            SentCounts(None if strategy.sign_mask is None else strategy.sign_mask.tau),
            Meetings(partial(sample, tuple(names.values()), self.job)) if sums_within_rounds else None,
            absent=task.absent,
        )  # fmt: skip
        self.sites = [
            LabSite(name, self.setting, shares.train[number], task.attack if number in bad else None)
            for number, name in names.items()
        ]
        self._tests: dict[str, Examples] = {
            name: shares.test[number if len(shares.test) > 1 else 0] for number, name in names.items()
        }
        self._validation = shares.validation
        self._honest = [site for number, site in zip(names, self.sites, strict=True) if number not in bad]
        self._alike = len(shares.test) == 1 and not self.setting.personal()
        self._secret = noise_source(task.seed, "hub")
        self.rounds: list[int] = []
        self.measured: list[dict[str, float]] = []
        self.worst: list[dict[str, float]] = []
        self.sent: list[int] = []
        self.messages: list[int] = []

    def secret(self, count: int) -> bytes:
        """What nobody but the hub knows, in life."""
        return self._secret.words(-(-count // 8)).tobytes()[:count]

    def epsilon(self) -> float | None:
        """What the rounds have cost."""
        privacy = self.job.privacy
        return None if privacy is None else self.setting.spent.epsilon(privacy.delta)

    def told(self, kind: str, number: int, data: Mapping[str, Any]) -> None:  # noqa: ARG002
        """A round is over: what it has sent."""
        if kind == "round-finished":
            self.sent.append(self.setting.counts.traffic[number])
            self.messages.append(self.setting.counts.messages[number])

    def measure(self, model: bytes, lineage: Lineage) -> None:
        """Measure a version, or each honest site's own model."""
        arrays = decode_tensors(model)[1]
        sites = self._honest[:1] if self._alike else self._honest
        found = [site.evaluate(lineage.round, arrays, self._tests[site.name]) for site in sites]
        measured = _mean(found)
        if (validation := self._validation) is not None:
            chosen_by = _mean([site.evaluate(lineage.round, arrays, validation) for site in sites])
            measured |= {f"validation {name}": value for name, value in chosen_by.items()}
        self.rounds.append(lineage.round)
        counts = self.setting.counts
        self.measured.append(measured | counts.agreement(lineage.round) | counts.pruned(lineage.round))
        if not self._alike:
            self.worst.append(
                {
                    name: (max if name in SMALLER_IS_BETTER else min)(each[name] for each in found)
                    for name in _mean(found)
                }
            )


def _job(task: Task, sites: int) -> Job:
    """The cell's job for so many sites: nobody is asked twice, and the lab measures by itself."""
    asked = min(asked_of(task.sites, task.participation), sites)
    minimum = min(task.job.participants.minimum, asked)
    participants = task.job.participants.model_copy(
        update={"minimum": minimum, "fraction": asked / sites, "retries": 0}
    )  # fmt: skip
    evaluation = task.job.evaluate.model_copy(update={"every": 0})
    return task.job.model_copy(
        update={"participants": participants, "evaluate": evaluation, "checkpoint_every": task.every}
    )  # fmt: skip


def _mean(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of the metrics that all have."""
    names = sorted(set.intersection(*(set(each) for each in found)))
    return {name: sum(each[name] for each in found) / len(found) for name in names}


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, tuple[float, ...]]:
    names = rows[0].keys() if rows else ()
    return {name: tuple(row[name] for row in rows) for name in names}
