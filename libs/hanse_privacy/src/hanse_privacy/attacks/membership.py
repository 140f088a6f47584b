"""Membership inference: can somebody who has the model tell who was in its training data?

The attacker ranks examples by one number each (the loss, or the confidence in the true class) and calls those beyond a
threshold members (Yeom et al. 2018; Carlini et al. 2022 for why the true positives at few false ones matter most).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hanse_fabric.errors import ErrorCode, HanseError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Inference:
    """How well members are told from others.

    Attributes:
        auc: the probability that a member ranks before another; 0.5 is guessing.
        advantage: the largest difference of true and false positive rates over all thresholds; 0 is guessing.
        threshold: of the score (the higher, the more a member), at which the advantage is reached.
        true_positives: rates at false positive rates of at most 1 % and 0.1 %.
        error: standard error of the AUC, were there no difference: differences below it tell nothing.
    """

    members: int
    others: int
    auc: float
    advantage: float
    threshold: float
    true_positives: tuple[float, float]
    error: float


def infer_by_loss(members: ArrayLike, others: ArrayLike) -> Inference:
    """The loss-threshold attack: members have smaller losses.

    Args:
        members, others: losses of examples that were trained on, and of examples from the same distribution that were
            not: (m,), (o,).

    Raises:
        HanseError: INVALID_INPUT for none, or values that are not finite.
    """
    return infer_by_score(-_losses("members", members), -_losses("others", others))


def infer_by_score(members: Floats, others: Floats) -> Inference:
    """An attack by any score that is higher for members: (m,), (o,)."""
    scores = np.concatenate([members, others])
    truth = np.concatenate([np.ones(members.size, dtype=bool), np.zeros(others.size, dtype=bool)])
    order = np.argsort(-scores, kind="stable")
    last_of_ties = np.append(np.diff(scores[order]) != 0, True)
    true = np.cumsum(truth[order])[last_of_ties] / members.size
    false = np.cumsum(~truth[order])[last_of_ties] / others.size
    best = int(np.argmax(true - false))
    area = np.trapezoid(np.concatenate([[0.0], true]), np.concatenate([[0.0], false]))
    at = tuple(float(true[false <= rate].max(initial=0.0)) for rate in (0.01, 0.001))
    m, o = members.size, others.size
    return Inference(
        members=m,
        others=o,
        auc=float(area),
        advantage=float(max(0.0, (true - false)[best])),
        threshold=float(scores[order][last_of_ties][best]),
        true_positives=(at[0], at[1]),
        error=math.sqrt((m + o + 1) / (12 * m * o)),
    )


def _losses(name: str, values: ArrayLike) -> Floats:
    made = np.asarray(values, dtype=np.float64).reshape(-1)
    if not made.size or not np.isfinite(made).all():
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{name}: {made.size} values, expected one or more, all of them finite"
        )
    return made
