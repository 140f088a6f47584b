"""An accountant of its own, for tests and benchmarks: closed forms and FFT (Gopi, Lee, Wutschitz 2021), by scipy alone.

Privacy losses are put on a grid by their distribution function, with the mean that they have exactly, so that the error
of the sum is that of its variance, h^2/12 of a step's; it is no bound to either side, but an estimate to some 1e-4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy import integrate, optimize, stats

Array = np.ndarray
LARGEST = 100.0
"""Of epsilons that are told; above, infinity."""
_POINTS = 200_000
"""Of a density. Five times as many change no epsilon of the tests' by a millionth."""


def epsilon_of_sampled(noise: float, rate: float, steps: int, delta: float) -> float:
    """Of `steps` sums over Poisson samples with normal noise of deviation `noise`: adding or removing one example."""
    if rate == 1:
        return epsilon_of_normal(noise / math.sqrt(steps), delta)
    return max(_epsilon(noise, rate, steps, delta, removed) for removed in (True, False))


def epsilon_of_far_tail(noise: float, rate: float, steps: int, delta: float, *, tilt: float) -> float:
    """As `epsilon_of_sampled`, of removing an example, also where delta is so small that a transform's rounding counts:
    each loss x is weighed by exp(tilt x), so that the sum's tail at epsilon is its middle (Cramer's change of measure).

    Masses are parted between the grid's points on either side, which keeps the mean: good to some 1e-5.
    """
    width, count = 1e-4, 1 << 18
    x = np.linspace(-14 * noise, 1 + 14 * noise, 1_000_001)
    loss = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * noise**2))
    mass = ((1 - rate) * stats.norm.pdf(x, 0, noise) + rate * stats.norm.pdf(x, 1, noise)) * (x[1] - x[0])
    mass *= np.exp(tilt * loss)
    whole = float(mass.sum())
    below = np.floor(loss / width).astype(int)
    inside = np.abs(below) < count // 2 - 2
    share, masses = loss / width - below, np.zeros(count)
    np.add.at(masses, below[inside] % count, (mass / whole * (1 - share))[inside])
    np.add.at(masses, (below[inside] + 1) % count, (mass / whole * share)[inside])
    total = np.fft.fftshift(np.fft.irfft(np.fft.rfft(masses) ** steps, count))
    losses = (np.arange(count) - count // 2) * width

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        weights = total[above] * np.exp(steps * math.log(whole) - tilt * losses[above])
        return float(weights @ -np.expm1(epsilon - losses[above])) - delta

    return float(optimize.brentq(excess, 0.1, 0.9 * float(losses[-1]), xtol=1e-9))


def epsilon_of_mixed(releases: Sequence[tuple[str, float, float, int]], delta: float) -> float:
    """Of releases of several kinds that are fixed beforehand: (kind, amount, rate, count) each, kinds and amounts as in
    `hanse_privacy.accounting.events`. Each one's loss is parted between a grid's points on either side, which keeps its
    mean, and adds some 1e-9 to its variance."""
    return max(_mixed(tuple(releases), delta, removed) for removed in (True, False))


def _mixed(releases: tuple[tuple[str, float, float, int], ...], delta: float, removed: bool) -> float:
    losses, total = _whole_loss(releases, removed)

    def excess(epsilon: float) -> float:
        above = np.searchsorted(losses, epsilon, side="right")
        return float(total[above:] @ -np.expm1(epsilon - losses[above:])) - delta

    return _root(excess, float(losses[-1]))


@lru_cache(maxsize=2)
def _whole_loss(releases: tuple[tuple[str, float, float, int], ...], removed: bool) -> tuple[Array, Array]:
    """The losses of all together with their masses; kept, for a test asks for several deltas, one after another."""
    width, count = 1e-4, 1 << 19
    transform = np.ones(count // 2 + 1, dtype=complex)
    for kind, amount, rate, times in releases:
        losses, masses = _losses(kind, amount, rate, removed)
        below = np.floor(losses / width).astype(int)
        share = losses / width - below
        points = np.bincount(below % count, masses * (1 - share), count)
        points += np.bincount((below + 1) % count, masses * share, count)
        transform *= np.fft.rfft(points) ** times
    total = np.maximum(np.fft.fftshift(np.fft.irfft(transform, count)), 0.0)
    return (np.arange(count) - count // 2) * width, total


def _losses(kind: str, amount: float, rate: float, removed: bool) -> tuple[Array, Array]:
    """The losses of one release with their masses."""
    if kind == "pure":
        likely = 1 / (1 + math.exp(-amount))
        return np.array([amount, -amount]), np.array([likely, 1 - likely])
    middles = (np.arange(_POINTS) + 0.5) / _POINTS
    if kind == "laplace":
        inner = np.exp(-middles / amount) / (2 * amount) / _POINTS
        ends = np.array([0.5, 0.5 * math.exp(-1 / amount)])
        losses = np.append((1 - 2 * middles) / amount, [1 / amount, -1 / amount])
        masses = np.append(inner, ends)
        return losses, masses / masses.sum()
    low, high = -12 * amount, 1 + 12 * amount
    x = low + (high - low) * middles
    without = math.log1p(-rate) if rate < 1 else -math.inf
    with_one = np.logaddexp(without, math.log(rate) + (2 * x - 1) / (2 * amount**2))
    plain = np.exp(-0.5 * (x / amount) ** 2)
    masses = plain * np.exp(with_one) if removed else plain
    return (with_one if removed else -with_one), masses / masses.sum()


def epsilon_of_normal(ratio: float, delta: float) -> float:
    """Of one release with normal noise (Balle and Wang 2018, theorem 8)."""

    def excess(epsilon: float) -> float:
        far = stats.norm.logcdf(-0.5 / ratio - epsilon * ratio)
        return float(stats.norm.cdf(0.5 / ratio - epsilon * ratio) - math.exp(epsilon + far) - delta)

    return _root(excess, LARGEST)


def _epsilon(noise: float, rate: float, steps: int, delta: float, removed: bool) -> float:
    """In one direction: of the loss of the sample with the example against the one without, or the other way round."""
    sign = 1.0 if removed else -1.0

    def loss(x: float) -> float:
        return sign * float(np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * noise**2)))

    def density(x: float) -> float:
        plain = float(stats.norm.pdf(x, 0, noise))
        return (1 - rate) * plain + rate * float(stats.norm.pdf(x, 1, noise)) if removed else plain

    def moment(of: Callable[[float], float]) -> float:
        found = integrate.quad(lambda x: of(x) * density(x), -14 * noise, 1 + 14 * noise, points=[0, 1], limit=500)
        return float(found[0])

    mean = moment(loss)
    deviation = math.sqrt(moment(lambda x: (loss(x) - mean) ** 2))
    width = deviation / 60
    reach = max(abs(loss(-9.5 * noise)), abs(loss(1 + 9.5 * noise)))
    if steps * abs(mean) > LARGEST:
        return math.inf
    half = max(steps * abs(mean) + 14 * math.sqrt(steps) * deviation, 1.2 * reach)
    count = 1 << math.ceil(math.log2(2 * half / width))
    grid = (np.arange(count) - count // 2) * width
    edges = np.append(grid - width / 2, grid[-1] + width / 2)
    masses = np.diff(_distribution(edges * sign, noise, rate, removed) * sign)
    # On the grid, the mean differs a little: all steps are moved by that.
    shift = mean - float(masses @ grid) / float(masses.sum())
    total = np.fft.irfft(np.fft.rfft(np.fft.ifftshift(masses)) ** steps, count)
    losses, total = grid + steps * shift, np.maximum(np.fft.fftshift(total), 0.0)

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return float(total[above] @ -np.expm1(epsilon - losses[above])) - delta

    return _root(excess, float(losses[-1]))


def _root(excess: Callable[[float], float], largest: float) -> float:
    if excess(0.0) <= 0:
        return 0.0
    return math.inf if excess(largest) > 0 else float(optimize.brentq(excess, 0.0, largest, xtol=1e-12))


def _distribution(losses: Array, noise: float, rate: float, removed: bool) -> Array:
    """P(log of the ratio <= losses)."""
    base = np.expm1(losses) + rate
    x = np.full(losses.shape, -np.inf)
    x[base > 0] = noise**2 * np.log(base[base > 0] / rate) + 0.5
    plain = stats.norm.cdf(x, 0, noise)
    return np.asarray((1 - rate) * plain + rate * stats.norm.cdf(x, 1, noise) if removed else plain)
