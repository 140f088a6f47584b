"""Which rounds of a job have sums among the sites in the middle of training, and how long a site waits in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hanse_learning.config.algorithms import FedTanConfig
from hanse_learning.config.checks import check_model, check_train
from hanse_learning.config.models import has_batch_statistics
from hanse_learning.config.training import TrainConfig

_OF_STATISTICS = frozenset({"statistics", "batch_norm", "normalization"})


def patience_of(train: TrainConfig) -> float | None:
    """Seconds that a site waits for the others in a sum; None where its algorithm has none."""
    return train.algorithm.patience if isinstance(train.algorithm, FedTanConfig) else None


@dataclass(frozen=True, slots=True)
class RoundPatience:
    """Seconds that sites wait for each other in the sums of a run's rounds.

    Attributes:
        patience: None where no round has sums.
        frozen_from: the first round in which the model's batch statistics are frozen as a kind of layer, and nobody
            asks for a sum; None: they never are. (By pattern, they may be frozen as well.)
    """

    patience: float | None
    frozen_from: int | None = None

    def of(self, round_number: int) -> float | None:
        """The seconds in one round; None where it has no sums."""
        return None if self.frozen_from is not None and self.frozen_from <= round_number else self.patience


def round_patience(model: Mapping[str, Any], train: Mapping[str, Any]) -> RoundPatience:
    """The same of a job's sections, for its rounds: none where the model has no batch statistics, too.

    Raises:
        HanseError: INVALID_INPUT for sections that `check_learning` would have refused.
    """
    patience = patience_of(check_train(train))
    if patience is None:
        return RoundPatience(None)
    checked = check_model(model)
    frozen = [rule.from_round for rule in checked.state if rule.keep == "frozen" and rule.layers in _OF_STATISTICS]
    return RoundPatience(patience if has_batch_statistics(checked) else None, min(frozen, default=None))
