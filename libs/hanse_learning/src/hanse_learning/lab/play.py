"""A cell, played: rounds of training and reducing, measured as they go."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Frozen
from hanse_fabric.names import derive_seed
from hanse_learning.config import FedTanConfig, check_model, check_train
from hanse_learning.lab.attacks import hostile
from hanse_learning.lab.cells import Task
from hanse_learning.lab.data import shares_of
from hanse_learning.lab.server import LabServer
from hanse_learning.lab.site import Answer, Given, LabSite, Setting
from hanse_learning.server.config import check_strategy
from hanse_learning.site.entries import Entries
from hanse_learning.site.examples import Examples
from hanse_learning.site.sums import Meeting

_OF_THE_RUN = (ErrorCode.TRAINING_FAILED, ErrorCode.INVALID_INPUT)
"""What a diverging run ends with: sites refuse to go on from, and servers to make, what is not finite."""


class Outcome(Frozen):
    """What came of a cell.

    Attributes:
        rounds: that were measured, ascending.
        metrics: by name, for each of them; over sites with models or tests of their own the mean.
        worst: the same for the site that is worst off, where sites differ.
        sent: bytes of each round, from the first, up and down.
        seconds: that it took.
        failed: why it ended early; empty where it did not.
    """

    rounds: tuple[int, ...]
    metrics: dict[str, tuple[float, ...]]
    worst: dict[str, tuple[float, ...]] = {}
    sent: tuple[int, ...]
    seconds: float
    failed: str = ""


def play(task: Task) -> Outcome:
    """Play a cell; the same outcome for the same task, but for `seconds`.

    Raises:
        HanseError: where data and partition do not fit. A run that diverges is an outcome, not an error.
    """
    began = time.monotonic()
    game = _Game(task)
    failed = ""
    try:
        for number in range(1, task.job.rounds + 1):
            game.round(number)
            if number % task.every == 0 or number == task.job.rounds:
                game.measure(number)
    except HanseError as error:
        if error.code not in _OF_THE_RUN:
            raise
        failed = error.message
    return Outcome(
        rounds=tuple(game.rounds), metrics=_columns(game.measured), worst=_columns(game.worst), sent=tuple(game.sent),
        seconds=time.monotonic() - began, failed=failed,
    )  # fmt: skip


class _Game:
    def __init__(self, task: Task) -> None:
        shares = shares_of(task)
        job = task.job
        train = check_train(job.train)
        self.setting = Setting(
            check_model(job.model), train, shares.problem, job.seed,
            frozenset(check_strategy(job.strategy).reduction.needs()) & {"first_loss"},
        )  # fmt: skip
        bad = hostile(task.attack, task.sites, task.seed)
        self.sites = [
            LabSite(f"site{number:04d}", self.setting, share, task.attack if number in bad else None)
            for number, share in enumerate(shares.train)
            if len(share)
        ]
        self._tests: dict[str, Examples] = {
            f"site{number:04d}": shares.test[number if len(shares.test) > 1 else 0] for number in range(task.sites)
        }
        self._honest = [site for site in self.sites if int(site.name[4:]) not in bad]
        self._alike = len(shares.test) == 1 and not self.setting.personal()
        self._entries: Entries = self.setting.entries(1)
        self._changing = any(rule.from_round > 1 for rule in self.setting.model.state)
        self._together = isinstance(train.algorithm, FedTanConfig)
        self._asked = job.participants.minimum
        self.server = LabServer(
            self.setting.first_model(), self._entries.travelling, job.strategy, train.algorithm,
            sites=len(self.sites), by_examples=job.weighting == "examples",
        )  # fmt: skip
        self.rounds: list[int] = []
        self.measured: list[dict[str, float]] = []
        self.worst: list[dict[str, float]] = []
        self.sent: list[int] = []

    def round(self, number: int) -> None:
        """Have the round's sites train, and reduce what they send."""
        if self._changing:
            self._entries = self.setting.entries(number)
        chosen = self._chosen(number)
        answers = self._meet(chosen, number) if self._together else [site.train(self._given(number)) for site in chosen]
        self.server.reduce(answers)
        self.sent.append(self.server.sent(answers))

    def measure(self, number: int) -> None:
        """Measure the model, or each honest site's own."""
        given = self._given(number)
        sites = self._honest[:1] if self._alike else self._honest
        found = [site.evaluate(given, self._tests[site.name]) for site in sites]
        names = sorted(set.intersection(*(set(each) for each in found)))
        self.rounds.append(number)
        self.measured.append({name: sum(each[name] for each in found) / len(found) for name in names})
        if not self._alike:
            self.worst.append(
                {name: (max if name in ("loss", "mse") else min)(each[name] for each in found) for name in names}
            )

    def _chosen(self, number: int) -> list[LabSite]:
        if self._asked >= len(self.sites):
            return self.sites
        chooser = random.Random(derive_seed(self.setting.seed, number, "sample"))  # noqa: S311 - repeatable, not secret
        return sorted(chooser.sample(self.sites, self._asked), key=lambda site: site.name)

    def _given(self, number: int) -> Given:
        return Given(number, self.server.model, self._entries, self.server.extras)

    def _meet(self, chosen: Sequence[LabSite], number: int) -> list[Answer]:
        """Train in threads, for each waits for the others in the middle."""
        meeting = Meeting([site.name for site in chosen], patience=600.0)
        given = self._given(number)

        def train(site: LabSite) -> Answer:
            seat = Given(given.round, given.model, given.entries, given.extras, meeting.of(site.name))
            try:
                return site.train(seat)
            except BaseException:
                meeting.leave()
                raise

        with ThreadPoolExecutor(len(chosen), "site") as pool:
            futures = [pool.submit(train, site) for site in chosen]
        errors = [error for future in futures if (error := future.exception()) is not None]
        own = [error for error in errors if not (isinstance(error, HanseError) and error.code is ErrorCode.QUORUM)]
        if errors:
            raise (own or errors)[0]
        return [future.result() for future in futures]


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, tuple[float, ...]]:
    names = rows[0].keys() if rows else ()
    return {name: tuple(row[name] for row in rows) for name in names}
