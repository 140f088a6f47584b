"""A job's privacy terms as this site's worker is told them: what it clips to, and the noise that it adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hanse_fabric.messages import PrivacyTerms, RingPlan

if TYPE_CHECKING:
    from hanse_privacy.accounting.accountant import AccountantName
    from hanse_privacy.accounting.terms import RoundNoise, SampledTraining


def terms_of_work(
    terms: PrivacyTerms,
    participant: str,
    config: Mapping[str, Any],
    *,
    examples: int,
    coordinates: Callable[[], int] | None,
    units: int | None = None,
    accountant: AccountantName = "pld",
    ring: RingPlan | None = None,
) -> tuple[RoundNoise, dict[str, Any]]:
    """The noise of a round at this site, and what the worker is told of it, as `config["privacy"]`.

    Args:
        config: the task's, whose `train` section dp_sgd depends on.
        coordinates: counts the numbers of the received model, where the noise depends on them; None: there is no model.
        units: who have the examples, where the project's schema says it: dp_sgd hides and samples them.
        accountant: of the site, which makes noise by it that is its own; shares of noise are made by one for all.
        ring: of the masked sum; None: there is none, and nothing is rounded to its grid.

    Raises:
        HanseError: INVALID_INPUT for terms that this site cannot keep.
    """
    from hanse_privacy.accounting.terms import round_noise
    from hanse_privacy.noise.rounding import clip_before_rounding

    privacy = terms.privacy
    noise = round_noise(
        terms,
        participant,
        work=_work(config, examples, units) if privacy.mechanism == "dp_sgd" else None,
        coordinates=coordinates() if coordinates is not None and privacy.mechanism == "staircase" else None,
        accountant=accountant,
    )
    if privacy.placement == "central":
        return noise, {}
    told: dict[str, Any] = {"mechanism": noise.mechanism, "clip": noise.clip, "scale": noise.scale}
    if noise.work is not None:
        expected = min(noise.work.batch_size, noise.work.examples)
        told |= {"steps": noise.work.steps, "batch": expected, "rate": noise.work.rate}
        if units is not None:
            told["by_unit"] = True
    if privacy.placement == "distributed":
        # This site's share of the noise is added later, where the update becomes ring elements.
        told["scale"] = 0.0
        if noise.mechanism == "dp_ftrl":
            told["mechanism"] = "discrete_gaussian"  # by whose norm it is clipped
        if ring is not None and coordinates is not None:
            step = 2.0**-ring.default.fraction
            told["clip"] = clip_before_rounding(
                noise.clip,
                noise.mechanism,
                coordinates(),
                step,
                always=not noise.chance,
                again=ring.rotation is not None,
            )
    return noise, told


def _work(config: Mapping[str, Any], examples: int, units: int | None) -> SampledTraining:
    from hanse_learning.config import check_train
    from hanse_privacy.accounting.terms import SampledTraining

    train = check_train(config.get("train") or {})
    count = examples if units is None else units
    return SampledTraining.of(
        count, train.batch_size, epochs=train.epochs, steps=train.steps, by_unit=units is not None
    )
