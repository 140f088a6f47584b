"""Central differential privacy: the mean of clipped updates with noise, made by whoever sees the updates.

McMahan et al. (Learning Differentially Private Recurrent Language Models, 2018), and with `adaptive_clip` Andrew et al.
(Differentially Private Learning with Adaptive Clipping, 2021): the norm moves toward a quantile of the updates' norms
by a noisy count of those that are not clipped, C <- C exp(-0.2 (b - quantile)). The count is a release, too, and the
noise of the mean is so much larger that both together cost what the terms say: with noise in units of sensitivity,
1/total^2 = 1/mean^2 + 1/count^2. (Sensitivities are those of a replaced update: 2 C for the sum, 1 for the count.)

All sites count the same, and K, how many there are, is no secret. Noise is drawn from a seed of the coordinator's and
what identifies the reduction, so that a job that is done again, or in shards, gives the same bits; other updates, or
fewer, get other noise.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.privacy import Correlation, PrivacyTerms
from hanse_learning.server.norm_clipping import clipping_factors, squared_norms
from hanse_learning.server.reduction import TILE, Array, Rows, tiles
from hanse_learning.server.weighted_mean import WeightedMean
from hanse_privacy.accounting.terms import round_noise
from hanse_privacy.correlated.matrix import round_name
from hanse_privacy.correlated.mechanism import CorrelatedNoise
from hanse_privacy.correlated.stream import source_of
from hanse_privacy.noise.mechanisms import Gaussian, Laplace, Mechanism, add
from hanse_privacy.noise.source import NoiseSource

NORMS = "norms"
LEARNING_RATE = 0.2
_SHARE = 1 / 20
"""Standard deviation of the count's noise, per site (Andrew et al., section 3.1)."""
_COUNT = b"count"
_CHUNK = 1 << 16
"""Bytes of a file whose correlated noise is drawn at once. Reductions of other rounds are cut into other blocks."""


@dataclass(frozen=True, slots=True)
class PrivateMean:
    """The mean of K updates, each scaled to a norm of at most `clip`, with noise.

    Attributes:
        noise: of the two releases together, in sensitivities (standard deviation, or scale of Laplace noise).
        normal: whether it is Gaussian, for the L2 norm; else Laplace, for the L1 norm.
        seed: secret, 32 bytes.
        quantile: where the norm is moved to; None: it stays.
        context: what identifies the reduction: set by whoever reduces (`within`).
        matrix: by which noise is correlated from round to round; None: it is independent.
        before: names of the rounds before this one (`round_name`), and `within` a reduction of this one.
    """

    clip: float
    noise: float
    normal: bool
    seed: bytes
    quantile: float | None = None
    context: bytes = b""
    matrix: Correlation | None = None
    before: tuple[str, ...] = ()

    @classmethod
    def of(cls, terms: PrivacyTerms, seed: bytes, clip: float | None, before: tuple[str, ...] = ()) -> PrivateMean:
        """From a job's terms; `clip` is this round's norm where it is moved.

        Raises:
            HanseError: INVALID_INPUT for terms that are not central, or that no noise keeps.
        """
        privacy = terms.privacy
        if privacy.placement != "central" or privacy.mechanism not in ("gaussian", "laplace", "dp_ftrl"):
            raise invalid("privacy", f"{privacy.placement}, {privacy.mechanism}", "central; gaussian, laplace, dp_ftrl")
        if privacy.mechanism == "dp_ftrl" and len(before) != terms.round - 1:
            raise invalid("reduction.before", len(before), f"a name for each round before round {terms.round}")
        normal = privacy.mechanism != "laplace"
        # Distributions of Laplace noise need a library that hubs do not install.
        made = round_noise(terms, "", accountant="pld" if normal else "rdp")
        quantile = privacy.adaptive_clip if normal else None
        noise = made.multiplier / 2
        return cls(clip or privacy.clip, noise, normal, seed, quantile, matrix=terms.correlation, before=before)

    def within(self, *names: str, participants: Iterable[str] = ()) -> PrivateMean:
        """The same for one reduction, of these very updates, which are those participants'."""
        now = () if self.matrix is None else (*self.before, round_name(len(self.before) + 1, participants))
        return replace(self, context=hashlib.sha256("\n".join(names).encode()).digest(), before=now)

    def measure(self, updates: Rows) -> Mapping[str, Array]:
        """See `Measured.measure`: squares, or absolute values."""
        return {NORMS: squared_norms(updates) if self.normal else _absolute_sums(updates)}

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:  # noqa: ARG002
        """See `Reweighed.reweigh`."""
        if not np.allclose(weights, 1 / len(weights), rtol=1e-12, atol=0):
            raise invalid("weighting", weights.tolist(), "uniform: with other weights the noise would be too little")
        # A little below the norm, so that rounding cannot lift an update above it. With dp_ftrl it covers the rounding
        # of all rounds, of up to 2^38 numbers in all of them over the square of the noise in sensitivities.
        return weights * clipping_factors(self._norms(totals), self.clip) * (1 - 2.0**-20)

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`: without the noise, which depends on where the columns are."""
        WeightedMean().combine(updates, weights, out)

    def add_noise(self, change: Array, at: int, count: int, size: int = 4) -> None:
        """Add noise to the mean of `count` updates, (n,) in place.

        Args:
            at: offset of the columns in the file (bytes): noise is drawn by it.
            size: of a column's number in the file (bytes).
        """
        source, wide = self._source(at.to_bytes(8, "big")), change.astype(np.float64)
        if self.matrix is None:
            change[...] = add(wide, self._mechanism(count), source)
            return
        # Noise is correlated in sums, for the number of updates differs from round to round.
        sigma = 2 * self.noise * self.clip
        wide *= count
        for chunk in range(at // _CHUNK, -(-(at + wide.size * size) // _CHUNK)):  # as they lie in every round's file
            first = max(0, chunk * _CHUNK - at) // size
            part = wide[first : ((chunk + 1) * _CHUNK - at) // size]
            noise = CorrelatedNoise(
                sigma, self.matrix, len(self.before), partial(self._noise_of, chunk, size), _CHUNK // size,
                (at + first * size) % _CHUNK // size,
            )  # fmt: skip
            part[...] = add(part, noise, source)
        change[...] = wide / count

    def next_clip(self, totals: Mapping[str, Array]) -> float | None:
        """The norm of the next round; None where it stays."""
        if self.quantile is None:
            return None
        norms = self._norms(totals)
        deviation = self._count_noise(len(norms))
        noisy = add(np.array([float((norms <= self.clip).sum())]), Gaussian(deviation), self._source(_COUNT))
        share = float(noisy[0]) / len(norms)
        return self.clip * math.exp(-LEARNING_RATE * (share - self.quantile))

    def _norms(self, totals: Mapping[str, Array]) -> Array:
        return np.sqrt(totals[NORMS]) if self.normal else totals[NORMS]

    def _count_noise(self, count: int) -> float:
        """In sensitivities of the count: at least twice the whole, so that the mean's noise grows by 16 % at most."""
        return max(_SHARE * count, 2 * self.noise)

    def _mechanism(self, count: int) -> Mechanism:
        sensitivity = 2 * self.clip / count
        if not self.normal:
            return Laplace(sensitivity / (1 / self.noise))
        noise = self.noise
        if self.quantile is not None:
            noise = (noise**-2 - self._count_noise(count) ** -2) ** -0.5
        return Gaussian(noise * sensitivity)

    def _noise_of(self, chunk: int, size: int, number: int) -> NoiseSource:
        """What the independent noise of a round's columns is made of: the same whenever the round is looked back at."""
        return source_of(self.seed, number, self.before[number - 1], chunk, size)

    def _source(self, which: bytes) -> NoiseSource:
        if not self.context:
            raise HanseError(ErrorCode.INTERNAL, "private mean: noise without a context would repeat itself")
        return NoiseSource(hmac.digest(self.seed, self.context + which, "sha256"))


def _absolute_sums(updates: Rows) -> Array:
    """(K,) float64 sums of absolute values over K arrays (n,), made in float64 tile by tile."""
    found = np.zeros(len(updates))
    wide = np.empty(min(TILE, len(updates[0])) if updates else 0)
    for index, row in enumerate(updates):
        for part in tiles(len(row)):
            values = wide[: part.stop - part.start]
            np.abs(row[part], out=values)
            found[index] += np.add.reduce(values)
    return found
