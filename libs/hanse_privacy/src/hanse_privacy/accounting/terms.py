"""From a job's privacy section to the noise of one round and what it costs: the one place where epsilon becomes noise.

What is hidden, and the sensitivity that follows:

- `dp_sgd`: one example, there or not; or one unit (a patient, a device) with all of its examples, where the project's
  schema says whose each is. Each step releases the sum of clipped gradients of a Poisson sample; one of them changes it
  by at most `clip`.
- every other mechanism: a site's whole contribution to a round, replaced by any other one. (That a site takes part is
  no secret.) It changes the update, or the sum of updates, by at most 2 `clip` in the mechanism's norm.
- `dp_ftrl`: all that a site contributes to the run, replaced by any other contributions to the same rounds. It changes
  C X (`hanse_privacy.correlated`) by at most 2 `clip` times the matrix's sensitivity. It is charged once for the run.

So a `noise_multiplier` z means standard deviation (or scale) z `clip`, which is z sensitivities for `dp_sgd` and z / 2
for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.privacy import PrivacyTerms
from hanse_privacy.accounting.accountant import AccountantName, accountant_of
from hanse_privacy.accounting.calibration import amount_of, noise_for, noise_of_amount
from hanse_privacy.accounting.events import EventKind, ReleaseEvent
from hanse_privacy.accounting.parts import of_rounds, require_one_epsilon
from hanse_privacy.correlated.sensitivity import sensitivity

Unit = Literal["example", "unit", "site", "run"]
LENGTHENED = 2.0**-64
"""Probability with which rounding to the ring's grid may make an update longer than its clip (`noise.rounding`), where
the job has a delta; without, it never does."""

LEAST_CLIP = 2.0**-20
"""Norms of gradients are made of squares of float32, which are lost of numbers below 2^-63. Beside a much smaller clip
these would be large, and would pass it as if they were nothing."""


@dataclass(frozen=True, slots=True)
class SampledTraining:
    """What a site trains on: needed for `dp_sgd`, whose guarantee depends on it.

    Attributes:
        examples: of the site; or units that have them.
        batch_size: the expected size of a Poisson batch of them.
        steps: of one round.
        by_unit: whether units are sampled, with all examples that each has.
    """

    examples: int
    batch_size: int
    steps: int
    by_unit: bool = False

    @property
    def rate(self) -> float:
        """The probability of an example to be in a batch."""
        return min(1.0, self.batch_size / self.examples)

    @classmethod
    def of(
        cls, examples: int, batch_size: int, *, epochs: int | None, steps: int | None, by_unit: bool = False
    ) -> SampledTraining:
        """Steps as they are given, or epochs of ceil(examples / batch_size) steps each."""
        if examples < 1:
            raise HanseError(ErrorCode.INVALID_INPUT, "data: no examples, dp_sgd needs one at least")
        return cls(examples, batch_size, steps or (epochs or 1) * -(-examples // batch_size), by_unit)


@dataclass(frozen=True, slots=True)
class RoundNoise:
    """The noise of one round.

    Attributes:
        mechanism, clip: as in the job.
        multiplier: standard deviation, or scale, per unit of `clip`; for `staircase`: 2 / epsilon of a coordinate.
        event, count: what is charged.
        chance: charged besides: a probability with which the update is longer than the clip (`LENGTHENED`); 0: never.
        unit: what the guarantee is about; `run`: a site's contributions to a whole run, for which it is charged once.
        work: for `dp_sgd`.
    """

    mechanism: str
    clip: float
    multiplier: float
    event: ReleaseEvent
    count: int
    unit: Unit
    work: SampledTraining | None = None
    chance: float = 0.0

    @property
    def charged(self) -> tuple[tuple[ReleaseEvent, int], ...]:
        """All that is charged: events with their counts."""
        own = (self.event, self.count)
        return (own, (ReleaseEvent("chance", self.chance), 1)) if self.chance else (own,)

    @property
    def scale(self) -> float:
        """Standard deviation, or scale, in the values' own unit."""
        return self.multiplier * self.clip


def round_noise(
    terms: PrivacyTerms,
    participant: str,
    *,
    work: SampledTraining | None = None,
    coordinates: int | None = None,
    accountant: AccountantName = "pld",
) -> RoundNoise:
    """The noise of this round at `participant` (`local`), or on the sum of all (`distributed`, `central`).

    Args:
        work: needed for dp_sgd.
        coordinates: how many numbers the update has; needed for staircase, whose guarantee is of each coordinate.

        accountant: of whoever adds the noise alone; shares are made by one for all (`accountant_of`).

    Raises:
        HanseError: INVALID_INPUT where no noise keeps the budget, what is needed is missing, the clip is too small, or
            sites that share noise have an epsilon each.
    """
    require_one_epsilon(terms.privacy)
    privacy, accountant = of_rounds(terms.privacy), accountant_of(terms.privacy.placement, accountant)
    epsilon = privacy.site_epsilon.get(participant, privacy.epsilon)
    if privacy.clip < LEAST_CLIP:
        raise invalid("privacy.clip", privacy.clip, f"{LEAST_CLIP:g} or more, beside which no rounding counts")
    if privacy.mechanism == "dp_sgd":
        if work is None:
            raise invalid("privacy.mechanism", "dp_sgd", "a mechanism for updates that were not trained here")
        count = work.steps
        multiplier = (
            privacy.noise_multiplier
            if epsilon is None
            else noise_for(
                "gaussian", epsilon, privacy.delta, count * terms.rounds, rate=work.rate, accountant=accountant
            )
        )
        event = ReleaseEvent("gaussian", _given(multiplier), work.rate)
        return RoundNoise(
            "dp_sgd", privacy.clip, _given(multiplier), event, count, "unit" if work.by_unit else "example", work
        )
    count = 1
    if privacy.mechanism == "staircase":
        if coordinates is None:
            raise invalid("privacy.mechanism", "staircase", "a mechanism for updates of unknown size")
        count = coordinates
    if privacy.mechanism == "dp_ftrl":
        return _whole_run(terms, accountant)
    kind = _KINDS[privacy.mechanism]
    chance = LENGTHENED if privacy.placement == "distributed" and privacy.delta else 0.0
    if privacy.placement == "distributed" and kind == "laplace":
        kind = "pure"
    if epsilon is None:
        noise = _given(privacy.noise_multiplier) / 2
    else:
        amount = noise_for(
            kind, epsilon, max(0.0, privacy.delta - terms.rounds * chance), count * terms.rounds, accountant=accountant
        )
        noise = noise_of_amount(kind, amount)
    if privacy.placement == "distributed" and privacy.scale == "literal":
        noise /= terms.active  # the printed scale is for a mean over n: n times too small for the sum
    event = ReleaseEvent(kind, amount_of(kind, noise))
    return RoundNoise(privacy.mechanism, privacy.clip, 2 * noise, event, count, "site", chance=chance)


def _whole_run(terms: PrivacyTerms, accountant: AccountantName) -> RoundNoise:
    privacy = terms.privacy
    if terms.correlation is None or privacy.min_separation is None:
        raise invalid("privacy.correlation", None, "the numbers of the matrix, with dp_ftrl")
    change = 2 * sensitivity(terms.correlation, rounds=terms.rounds, separation=privacy.min_separation)
    if privacy.epsilon is None:
        multiplier = _given(privacy.noise_multiplier)
    else:
        multiplier = change * noise_for("gaussian", privacy.epsilon, privacy.delta, 1, accountant=accountant)
    return RoundNoise("dp_ftrl", privacy.clip, multiplier, ReleaseEvent("gaussian", multiplier / change), 1, "run")


_KINDS: dict[str, EventKind] = {
    "gaussian": "gaussian",
    "laplace": "laplace",
    "staircase": "pure",
    "discrete_gaussian": "gaussian",
    "discrete_laplace": "pure",
}
"""By mechanism. Discrete normal noise hides what normal noise hides (`noise.exact`); of discrete Laplace noise only
epsilon is used, and so are sums of shares discrete."""


def _given(multiplier: float | None) -> float:
    if multiplier is None:
        raise invalid("privacy.epsilon", None, "given, for this participant or for all, or a noise_multiplier")
    return multiplier
