"""A task that was charged: what its worker is told, and what of its outcome may leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hanse_datapod.answers.plain import require_update_alone
from hanse_datapod.privacy.metrics import CoveredMetrics
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import HiddenFailure, Task, TaskKind

if TYPE_CHECKING:
    from hanse_privacy.ledger import Charge


@dataclass(frozen=True, slots=True)
class Reservation:
    """A task that was charged.

    Attributes:
        work: what the worker is told, as `config["privacy"]`: mechanism, clip (what it clips to), scale (standard
            deviation, or scale of Laplace kinds; 0 where it adds none), and for dp_sgd steps and the expected batch;
            `metrics`, where some leave.
        covered: the metrics that leave with noise of their own; None: none leave.
    """

    charges: tuple[Charge, ...]
    work: dict[str, Any]
    covered: CoveredMetrics | None = None

    @property
    def counts(self) -> bool:
        """Whether the number of examples has noise, too."""
        return self.covered is not None and self.covered.by_example

    def keep_covered(self, outcome: WorkOutcome) -> WorkOutcome:
        """The outcome without metrics, numbers and notes that no noise covers; noise is on those that are left."""
        if not self.work:
            return outcome
        if self.work.get("mechanism") != "dp_sgd":  # in which all that training makes is made of noisy gradients
            require_update_alone(outcome)
        kept = replace(outcome, info={}, note="")
        return replace(kept, metrics={}, counted="") if self.covered is None else self.covered.noisy(kept)

    def without_answer(self, task: Task, error: HanseError, examples: int) -> WorkOutcome:
        """In place of an evaluation that failed on the data: noise alone, for whether it failed is told otherwise.

        Args:
            examples: of the site.

        Raises:
            HanseError: the error, where it is of anything else. Means over examples that are cut never fail on them.
        """
        failed = error.code is ErrorCode.of(HiddenFailure.FAILED.value)
        if task.kind is not TaskKind.EVALUATE or not failed or self.counts:
            raise error
        return WorkOutcome(None, examples, {})
