"""FedNova (Wang et al., NeurIPS 2020): a site that takes more steps does not pull the model towards its own optimum.

A site's update is -lr G a, its gradients G weighted by a vector a of its local optimizer's (all ones for plain SGD).
The change is tau sum_k w_k u_k / |a_k|_1 with tau = sum_k w_k |a_k|_1. With equal |a_k|_1 that is the weighted mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hanse_fabric.errors import invalid
from hanse_learning.server.reduction import Array, Rows
from hanse_learning.server.weighted_mean import WeightedMean

NORMALIZER = "normalizer"
"""|a_k|_1 among the numbers that come with an update."""


@dataclass(frozen=True, slots=True)
class FedNova:
    """The mean of updates divided by their `normalizer`, multiplied by the mean normalizer."""

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:  # noqa: ARG002
        """See `Reweighed.reweigh`.

        Raises:
            HanseError: INVALID_INPUT unless every update comes with a positive `normalizer`.
        """
        normalizers = info.get(NORMALIZER)
        if normalizers is None or not (normalizers > 0).all():
            given = None if normalizers is None else normalizers.tolist()
            raise invalid("updates.info.normalizer", given, "a positive number with every update, which fednova needs")
        return weights * ((weights @ normalizers) / normalizers)

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,)."""
        WeightedMean().combine(updates, weights, out)
