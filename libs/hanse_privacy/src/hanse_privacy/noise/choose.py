"""The mechanism that a job's privacy section asks for."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.noise.mechanisms import Gaussian, Laplace, Mechanism
from hanse_privacy.noise.staircase import Staircase

KINDS = ("gaussian", "discrete_gaussian", "laplace", "discrete_laplace", "staircase")


def make_mechanism(kind: str, *, clip: float, multiplier: float | None, epsilon: float, delta: float) -> Mechanism:
    """The mechanism for one release of an update clipped to `clip` in the mechanism's norm.

    Args:
        kind: `Privacy.mechanism`, but for dp_sgd.
        multiplier: noise per unit of clip, where it is given; else epsilon and delta are what one release may cost.

    Raises:
        HanseError: INVALID_INPUT for another kind, or numbers that the mechanism does not have.
    """
    if kind not in KINDS:
        raise HanseError(ErrorCode.INVALID_INPUT, f"privacy.mechanism: {kind}, expected one of {', '.join(KINDS)}")
    if kind in {"gaussian", "discrete_gaussian"}:
        return (
            Gaussian.calibrated(clip, epsilon, delta)
            if multiplier is None
            else Gaussian(clip, multiplier * clip, delta)
        )
    spent = epsilon if multiplier is None else 1 / multiplier
    return Staircase(clip, spent) if kind == "staircase" else Laplace(clip, spent)
