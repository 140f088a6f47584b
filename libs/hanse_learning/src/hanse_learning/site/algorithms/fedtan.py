"""FedTAN (Wang, Shi and Chang, 2023): the first local step of a round has the batch statistics of all sites.

With one step a round, it is batch-norm SGD on the sites' batches together. The later steps are plain. Layers whose
statistics are frozen take part in no sum: FedTAN-II freezes all of them from a round on.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config import FedTanConfig
from hanse_learning.site.algorithms.common import loss_of
from hanse_learning.site.algorithms.plain import train_with
from hanse_learning.site.losses import LossOf
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.shared_statistics import shared_statistics
from hanse_learning.site.sums import CountingSums
from hanse_learning.site.training import LocalSteps


class FirstTogether(LocalSteps):
    """The first step with all sites, the others alone."""

    def __init__(self, module: nn.Module, loss: LossOf, sums: CountingSums, *, backward: bool) -> None:
        super().__init__(module, loss)
        self._sums, self._backward = sums, backward
        self._first = True

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """See `LocalSteps`.

        Raises:
            HanseError: QUORUM where another site's part does not come; TRAINING_FAILED for statistics that are not
                finite.
        """
        if not self._first:
            return super().gradients(x, y)
        self._first = False
        with shared_statistics(self.module, self._sums, len(x), backward=self._backward):
            loss = super().gradients(x, y)
        self._sums.end()
        return loss

    def takes(self, examples: int) -> bool:
        """See `LocalSteps`: one example will do where the others have more."""
        return self._first or super().takes(examples)


def train(session: Session) -> Trained:
    """See `registry.train_round`.

    Raises:
        HanseError: INVALID_INPUT where the session has no sums.
    """
    algorithm = session.config.algorithm
    if not isinstance(algorithm, FedTanConfig):
        raise invalid("train.algorithm.name", algorithm.name, "fedtan")
    if session.sums is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT, "algorithm fedtan: this site's task cannot exchange sums with the others",
            hint="run it in a process of its own, without masks and noise",
        )  # fmt: skip
    counted = CountingSums(session.sums)
    local = FirstTogether(session.module, loss_of(session), counted, backward=algorithm.backward)
    made = train_with(session, local)
    return replace(made, metrics=made.metrics | {"sums": float(counted.rounds), "summed_values": float(counted.values)})
