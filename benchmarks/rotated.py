"""How exact the mean of updates is in narrow rings, as they are and rotated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import HanseError
from hanse_privacy.ring.codec import decode, encode, uniforms
from hanse_privacy.ring.plan import make_plan
from hanse_privacy.ring.rotation import Rotation
from hanse_schemas.secure_aggregation import SecureAggregation

SITES = 10
COUNT = 1 << 15
"""Numbers of an update: one piece of a model in float32."""
_DRAWS = {"normal": np.inf, "heavy": 2.0}
"""By name, degrees of freedom of Student's t: with 2 a few numbers are much larger than the others."""


def measure_rotated() -> dict[str, float]:
    """The mean squared error of the mean of 10 updates over its mean square, each way with the best of 24 bounds."""
    rotation = Rotation(bytes(32))
    figures = {}
    for kind, freedom in _DRAWS.items():
        rng = np.random.default_rng(7)
        rows = rng.normal(size=(SITES, COUNT)) if np.isinf(freedom) else rng.standard_t(freedom, (SITES, COUNT))
        ways = {"plain": rows, "rotated": np.stack([rotation.rotate(row, 0) for row in rows])}
        for way, given in ways.items():
            for bits in (8, 16):
                figures[f"{way}_{kind}_mse_{bits}"] = float(f"{_best(given, bits):.2g}")
    return figures


def _best(rows: NDArray[Any], bits: int) -> float:
    mean, largest = rows.mean(axis=0), float(np.abs(rows).max())
    return min(_error(rows, mean, bits, largest * 2.0 ** (-part / 2)) for part in range(24))


def _error(rows: NDArray[Any], mean: NDArray[Any], bits: int, bound: float) -> float:
    settings = SecureAggregation.model_validate({"mode": "ring", "bits": bits, "bound": bound})
    try:
        ring = make_plan(settings, participants=SITES, weighting="uniform").default
    except HanseError:
        return np.inf
    chances = uniforms(bytes(32))
    total = np.zeros(rows.shape[1], f"<u{bits // 8}")
    for row in rows:
        total += encode(row, ring, stochastic=chances)[0]
    return float(np.mean((decode(total, ring) / SITES - mean) ** 2) / np.mean(mean**2))
