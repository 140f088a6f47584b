"""A site's share of correlated noise in masked sums: a whole mechanism of its own, with a part of the variance.

Let each of n members draw Z_i with variance s^2/(n - t), t of whom may collude, and add row r of W_i = inv(C) Z_i to
round r. The sum over the members that do not collude is then inv(C) Z with variance s^2 or more: what `accounting` has
charged for. Four things could break that, and what is done about each:

- **A member is missing in some rounds.** Its W_i would be taken off later although it was never added. That is no loss
  of privacy, for W_i is independent of the others', and the sum over those who are in *all* rounds keeps its law:
  whoever adds something independent to it does no harm. But these may be few, where each round lacks another. So all
  members are in every sum, or the round is done again: `aggregate.least_answers`, to which sites hold the hub.
- **The hub chooses by what it saw** whom and when it asks. Of a run that breaks off, or leaves rounds out, less was
  released of the same mechanism. Contributions may depend on earlier sums (Denisov et al. 2022, theorem 2.1).
- **A round is done again** (a kill, a broken session, a lie). Two sums with the same noise and other contributions
  would tell their difference without any noise. So noise, and the coins that values are rounded by, follow from a
  secret of the site's (here), the update is kept (the datapod), and everything else in a round that is asked once more
  must be as before: the members, who trains, the model, the settings, the ring (`turns`).
- **A member rests.** It adds W_i alone. Who trains is in the request that all members sign, so no two of them are told
  otherwise, and a sum of all members is one of all who train.

Centres are whole multiples of 2^-8 steps, so that matrices are banded (`centred`): the sum of shares depends on the sum
of earlier ones alone, but for a distance that accountants leave out.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import Correlation, PrivacyTerms
from hanse_privacy.correlated.stream import FORM, correlated_steps, source_of
from hanse_privacy.noise.exact import Integers
from hanse_privacy.noise.source import NoiseSource

CHUNK = 1 << 13
"""Numbers that are drawn at once, as they lie in the update: whatever blocks are asked for."""


@dataclass(frozen=True, slots=True)
class CorrelatedShare:
    """One member's noise in one round.

    Attributes:
        sigma: of the independent noise that it is made of, in steps of the ring's grid.
        number: of the round, from 1.
        key: secret, 32 bytes, of this site and run alone.
    """

    matrix: Correlation
    sigma: int
    number: int
    key: bytes

    @classmethod
    def of(cls, terms: PrivacyTerms, sigma: int, key: bytes) -> CorrelatedShare:
        """From a task's terms.

        Raises:
            HanseError: INVALID_INPUT for terms without a banded matrix.
        """
        if terms.correlation is None or terms.correlation.decays:
            raise invalid("privacy.correlation", terms.correlation, "a banded matrix, whose noise has exact shares")
        return cls(terms.correlation, sigma, terms.round, key)

    def steps(self, count: int, first: int) -> Integers:
        """Noise of `count` parameters from the first on: (count,) steps of the grid."""
        chunks = range(first // CHUNK, -(-(first + count) // CHUNK))
        made = [self._chunk(chunk) for chunk in chunks]
        if not made:
            return np.zeros(0, dtype=np.int64)
        begin = first - chunks.start * CHUNK
        return np.concatenate(made)[begin : begin + count]

    def coins(self) -> bytes:
        """Seed of what the round's values are rounded by, 32 bytes."""
        return hmac.digest(self.key, b"hanse rounding of a round %d" % self.number, "sha256")

    def _chunk(self, chunk: int) -> Integers:
        def source(number: int) -> NoiseSource:
            return source_of(self.key, number, chunk)

        return correlated_steps(self.matrix, self.sigma, CHUNK, self.number, source)


def run_key(secret: bytes, project: str, run: str, participant: str) -> bytes:
    """The key of a run's noise, 32 bytes, from the secret of a site."""
    named = "\n".join(("hanse correlated shares", str(FORM), project, run, participant))
    return hmac.digest(secret, named.encode(), "sha256")


def commitment(secret: bytes) -> str:
    """What a ledger keeps of a site's secret: with another one earlier rounds' noise could not be taken off."""
    return hashlib.sha256(b"hanse correlated secret\n" + secret).hexdigest()
