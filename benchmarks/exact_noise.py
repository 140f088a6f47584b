"""How fast exact noise is drawn: millions of numbers a second of a core, tables made before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from hanse_privacy.noise.exact import discrete_gaussian, discrete_laplace
from hanse_privacy.noise.mechanisms import Gaussian
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.source import NoiseSource

COUNT = 5_000_000
REPEATS = 5

Draw = Callable[[int, NoiseSource], object]

GAUSSIAN: dict[str, Draw] = {
    "normal, as in dp_sgd": Gaussian(1.0).sample_steps,
    "discrete, 2^20 steps of a ring": lambda count, source: discrete_gaussian(2**20 + 7, count, source),
}
DISCRETE: dict[str, Draw] = {
    "discrete Laplace": lambda count, source: discrete_laplace(2**20 + 7, count, source),
    "a tenth of it": lambda count, source: polya_difference(2**20 + 7, 10, count, source),
    "a third of it": lambda count, source: polya_difference(2**20 + 7, 3, count, source),
    "a half of it": lambda count, source: polya_difference(2**20 + 7, 2, count, source),
}


def measure_noise() -> dict[str, float]:
    """The slowest of each kind, in millions of numbers a second."""
    return {
        "exact_gaussian_m_per_s": min(_rate(name, draw) for name, draw in GAUSSIAN.items()),
        "exact_discrete_m_per_s": min(_rate(name, draw) for name, draw in DISCRETE.items()),
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
