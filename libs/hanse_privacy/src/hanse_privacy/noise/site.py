"""A site's share of distributed noise, added while its masked update is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import RingPlan
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.accounting.terms import round_noise
from hanse_privacy.correlated.shares import CorrelatedShare
from hanse_privacy.noise.aggregate import GAUSSIAN, OBLIVIOUS, aggregate, spread
from hanse_privacy.noise.distributed import NoiseShare, make_share
from hanse_privacy.noise.parts import pairs_for
from hanse_privacy.noise.rounding import conditional_seed, steps_from_nearest
from hanse_privacy.noise.shuffled import PairedNoise
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.ring.codec import Uniforms, uniforms
from hanse_privacy.ring.files import Adjust, clipped_parameters
from hanse_privacy.ring.plan import capacity, largest_sum


def site_noise(
    terms: PrivacyTerms, participant: str, plan: RingPlan, update: Path, *, source: NoiseSource | None = None
) -> Adjust:
    """What `write_masked(adjust=...)` adds to the parameters: this site's share, drawn anew for every call.

    It also turns the ring's rounding to the nearest into one at random, which biases no sum (`noise.rounding`).

    Args:
        terms: of a task with placement `distributed`; its update is clipped already (`clip_before_rounding`).
        update: its file. A rotated one is rounded conditionally, as a whole (`noise.rounding`).
        source: for tests; else of fresh randomness.

    Raises:
        HanseError: INVALID_INPUT for a plan that weighs or rounds at random, for a ring without room for the noise, for
            a mode whose noise is not the site's alone, and as `make_share`.
    """
    if terms.privacy.noise in OBLIVIOUS:
        raise invalid("privacy.noise", terms.privacy.noise, "a mode in which a site draws its noise alone")
    if terms.privacy.mechanism == "dp_ftrl":
        raise invalid("privacy.mechanism", "dp_ftrl", "noise that is independent from round to round")
    share, source, chances = _share(terms, participant, plan), source or NoiseSource(), None
    if plan.rotation is not None:
        chances = uniforms(conditional_seed(lambda: clipped_parameters(update, plan), share.step, terms.privacy.clip))
    return at_random(share.step, lambda count, _: share.sample_steps(count, source), chances)


def paired_noise(terms: PrivacyTerms, participant: str, plan: RingPlan, count: int) -> tuple[Adjust, PairedNoise]:
    """The same in mode `oblivious-shuffled`: what is added, and the noise whose `parts()` the shuffler gets.

    Args:
        count: the update's parameters, which must be all that it has.

    Raises:
        HanseError: as `site_noise`; TOO_LARGE for more coordinates than can be shuffled.
    """
    if terms.privacy.noise != "oblivious-shuffled":
        raise invalid("privacy.noise", terms.privacy.noise, "oblivious-shuffled")
    _require_all(plan, "the shuffler chooses noise of all parameters")
    share = _share(terms, participant, plan)
    noise = PairedNoise(share.steps, pairs_for(terms.active, count, share.steps), NoiseSource())
    return at_random(share.step, lambda count, _: noise.draw(count)), noise


def noise_steps(terms: PrivacyTerms, participant: str, plan: RingPlan) -> int:
    """The scale of a site's whole noise in a mode in which others draw or choose, in steps of the ring's grid.

    Raises:
        HanseError: as `site_noise`.
    """
    return _share(terms, participant, plan).steps


def drawn_noise(noise: NDArray[np.int64], plan: RingPlan) -> Adjust:
    """Adds noise that was drawn already: (parameters,), in steps of the grid.

    Raises:
        HanseError: INVALID_INPUT, while adding, for another number of parameters.
    """

    _require_all(plan, "the noise was drawn for all parameters")

    def take(count: int, first: int) -> NDArray[np.int64]:
        own: NDArray[np.int64] = noise[first : first + count]
        if own.size != count:
            raise invalid("noise", f"of {noise.size} parameters", "of as many as the update has")
        return own

    return at_random(2.0**-plan.default.fraction, take)


def correlated_noise(terms: PrivacyTerms, participant: str, plan: RingPlan, key: bytes) -> Adjust:
    """This site's share of correlated noise, and its rounding: from a key of the site's and the run's alone, so that a
    round that is done again has the same bits (`correlated.shares`).

    Args:
        key: secret, 32 bytes; another one for every run.

    Raises:
        HanseError: as `site_noise`; INVALID_INPUT for terms without a banded matrix.
    """
    if plan.rotation is not None:
        raise invalid("ring.rotation", "a rotation", "none: in other axes a round's noise takes nothing off")
    _require_all(plan, "a round's noise takes off what others added to the same parameters")
    share = _share(terms, participant, plan)
    noise = CorrelatedShare.of(terms, share.steps, key)
    return at_random(share.step, noise.steps, uniforms(noise.coins()))


def at_random(
    step: float, draw: Callable[[int, int], NDArray[np.int64]], chances: Uniforms | None = None
) -> Adjust:  # fmt: skip
    """Adds noise to blocks of values, and the steps from rounding to the nearest to rounding at random.

    Args:
        draw: makes the noise of so many parameters, from which one on.
        chances: that values are rounded by; None: fresh ones.
    """
    chances = chances or uniforms()

    def adjust(values: NDArray[np.float64], first: int) -> NDArray[np.int64]:
        noise = draw(values.size, first).reshape(values.shape)
        added: NDArray[np.int64] = noise + steps_from_nearest(values, step, chances)
        return added

    return adjust


def check_rotation(privacy: Privacy, plan: RingPlan) -> None:
    """A rotation keeps the norm that Gaussian noise is made for, and none other: the sum of an update's magnitudes
    would grow by up to the square root of their number.

    Raises:
        HanseError: INVALID_INPUT for a rotated plan with other noise.
    """
    if plan.rotation is not None and privacy.mechanism not in GAUSSIAN:
        raise invalid("ring.rotation", "a rotation", f"none, with the mechanism {privacy.mechanism}")


def _require_all(plan: RingPlan, why: str) -> None:
    if plan.chosen is not None:
        raise invalid("ring.chosen", f"a part of {plan.chosen.fraction:g} of the parameters", f"none: {why}")


def _share(terms: PrivacyTerms, participant: str, plan: RingPlan) -> NoiseShare:
    if plan.largest_weight != 1:
        raise invalid("ring.largest_weight", plan.largest_weight, "1: sums with distributed noise weigh sites equally")
    if plan.stochastic:
        raise invalid("secure_aggregation.rounding", "stochastic", "nearest, where noise is added in the ring")
    check_rotation(terms.privacy, plan)
    ring = plan.default
    scale = round_noise(terms, participant).scale
    share = make_share(terms, scale, ring.fraction)
    law = aggregate(terms.privacy, terms.active, scale if share.gaussian else share.steps * share.step)
    tail = spread(terms) * law.tail()
    if largest_sum(ring, plan.participants, tail=tail) > capacity(ring.bits):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"ring: {plan.participants} participants within +-{ring.bound:g} and noise up to {tail:g} at "
            f"{ring.fraction} fraction bits overflow {ring.bits} bits",
            hint="bits: 64, a smaller bound, or a larger epsilon",
        )
    return share
