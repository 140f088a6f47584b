"""The best matrices for correlated noise beside jax-privacy's (`tests/correlated_oracle.py`), and the noise's speed."""

from __future__ import annotations

import sys
import time

import numpy as np

from correlated_oracle import BANDED, BUFFERED
from hanse_privacy.correlated.matrix import prefix_error
from hanse_privacy.correlated.optimum import banded, buffered
from hanse_privacy.correlated.sensitivity import sensitivity
from hanse_privacy.correlated.stream import correlated_steps, source_of

_COUNT = 1 << 15


def measure_correlated() -> dict[str, float]:
    """The largest ratio of prefix error times sensitivity, and million numbers a second of one round."""
    ratios = []
    for known, make in ((BANDED, banded), (BUFFERED, buffered)):
        for (rounds, separation, size), reference in known.items():
            made = make(size, rounds=rounds, separation=separation)
            ratios.append(prefix_error(made, rounds) * sensitivity(made, rounds=rounds, separation=separation))
            ratios[-1] /= reference
            print(f"  {make.__name__} {size}, {rounds} rounds: {ratios[-1]:.6f}", file=sys.stderr)
    matrix, rounds = banded(8, rounds=100, separation=10), 16
    correlated_steps(matrix, 1000, 16, 1, lambda at: source_of(bytes(32), at))
    began = time.perf_counter()
    correlated_steps(matrix, 1000, _COUNT, rounds, lambda at: source_of(bytes(32), at))
    speed = _COUNT * rounds / (time.perf_counter() - began) / 1e6
    return {"dp_ftrl_over_reference": float(np.ceil(max(ratios) * 1e5) / 1e5), "dp_ftrl_m_per_s": round(speed, 2)}
