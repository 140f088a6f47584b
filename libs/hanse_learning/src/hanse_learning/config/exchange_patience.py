"""Which rounds of a job have sums among the sites in the middle of training, and how long a site waits in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_learning.config.algorithms import FedTanConfig
from hanse_learning.config.checks import check_model, check_train
from hanse_learning.config.models import has_batch_statistics
from hanse_learning.config.training import TrainConfig

_OF_STATISTICS = frozenset({"statistics", "batch_norm", "normalization"})


def patience_of(train: TrainConfig) -> float | None:
    """Seconds that a site waits for the others in a sum; None where its algorithm has none."""
    return train.algorithm.patience if isinstance(train.algorithm, FedTanConfig) else None


def round_patience(model: Mapping[str, Any], train: Mapping[str, Any], round_number: int) -> float | None:
    """The same of a job's sections in a round: None, too, where the model has no batch statistics or they are frozen
    as a kind of layer. (By pattern, they may be frozen as well; then nobody asks for a sum.)

    Raises:
        HanseError: INVALID_INPUT for sections that `check_learning` would have refused.
    """
    patience = patience_of(check_train(train))
    if patience is None:
        return None
    checked = check_model(model)
    frozen = any(
        rule.keep == "frozen" and rule.layers in _OF_STATISTICS and rule.from_round <= round_number
        for rule in checked.state
    )
    return None if frozen or not has_batch_statistics(checked) else patience
