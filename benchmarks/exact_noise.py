"""How fast exact noise is drawn: millions of numbers a second of a core, tables made before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from hanse_privacy.noise.exact import discrete_gaussian, discrete_laplace
from hanse_privacy.noise.mechanisms import Gaussian, Laplace, Mechanism, add
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.noise.staircase import Staircase

COUNT = 5_000_000
REPEATS = 5

SCALES = (20, 30, 40)
"""Bits of a scale in steps: of rings of 32 to 64 bits."""

Draw = Callable[[int, NoiseSource], object]


def _share(scale: int, parts: int, count: int, source: NoiseSource) -> object:
    return polya_difference(scale, parts, count, source)


def _added(mechanism: Mechanism, count: int, source: NoiseSource) -> object:
    return add(np.zeros(count), mechanism, source)


GAUSSIAN: dict[str, Draw] = {
    "normal, as in dp_sgd": Gaussian(1.0).sample_steps,
    "discrete, 2^20 steps of a ring": lambda count, source: discrete_gaussian(2**20 + 7, count, source),
}
DISCRETE: dict[str, Draw] = {
    "discrete Laplace": lambda count, source: discrete_laplace(2**20 + 7, count, source),
    **{
        f"{part} of it, 2^{bits} steps of a ring": partial(_share, 2**bits + 7, parts)
        for bits in SCALES
        for part, parts in (("a tenth", 10), ("a third", 3), ("a half", 2))
    },
}
ADDED: dict[str, Draw] = {
    "normal, as in each step of dp_sgd": partial(_added, Gaussian(1.0)),
    "Laplace": partial(_added, Laplace(1.0)),
    "staircase": partial(_added, Staircase(1.0, 1.0)),
}
"""Noise that is added to values: these are rounded to the grid at random, which takes coins."""


def measure_noise() -> dict[str, float]:
    """The slowest of each kind, in millions of numbers a second."""
    return {
        "exact_gaussian_m_per_s": min(_rate(name, draw) for name, draw in GAUSSIAN.items()),
        "exact_discrete_m_per_s": min(_rate(name, draw) for name, draw in DISCRETE.items()),
        "exact_added_m_per_s": min(_rate(name, draw) for name, draw in ADDED.items()),
    }


def _rate(name: str, draw: Draw) -> float:
    source = NoiseSource()
    draw(1000, source)
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        draw(COUNT, source)
        seconds.append(time.process_time() - began)
    rate = COUNT / 1e6 / statistics.median(seconds)
    print(f"  {name}: {rate:.1f} million a second")
    return round(rate, 1)
