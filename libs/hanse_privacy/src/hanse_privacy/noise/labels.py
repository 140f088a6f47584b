"""What noise is really worth, in plain words: for reports, the console and the documentation. No numpy.

Three claims that Mugunthan (2022, chapter 2) makes of oblivious noise do not hold, and the labels say what does. The
sum's noise is not one Laplace variable. The printed scale is that of a mean, so epsilon is n times what is printed.
`oblivious` noise does not resist a coalition that pools its views.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.noise.aggregate import GAUSSIAN, aggregate, check_distributed, least_answers, parts_of
from hanse_privacy.noise.gaussian import concentrated_epsilon
from hanse_privacy.noise.parts import PAIRS


@dataclass(frozen=True, slots=True)
class Label:
    """The truth about distributed noise.

    Attributes:
        noise: what the noise in each coordinate of the sum is.
        epsilon_round: of one round, delta 0, for all coordinates together (the clipping norm is of the whole update);
            infinite for Gaussian noise.
        epsilon: of all rounds, delta 0.
        epsilon_delta, delta: of all rounds at the job's delta, if that is less.
        printed: epsilon of a round as Mugunthan (2022) prints it, where the literal scale is used; else None.
        resists, defeated_by: coalitions; the second empty where there is none.
        needs: how many of the active sites must answer.
    """

    noise: str
    epsilon_round: float
    epsilon: float
    epsilon_delta: float
    delta: float
    printed: float | None
    resists: str
    defeated_by: str
    needs: int

    def sentences(self) -> tuple[str, ...]:
        """The label as a report shows it."""
        said = [f"Noise in each coordinate of the sum: {self.noise}."]
        if self.printed is not None:
            said.append(
                f"The scale is as Mugunthan (2022) prints it, for a mean, but is added to a sum: epsilon of a round is "
                f"{self.epsilon_round:.4g}, not the printed {self.printed:.4g}."
            )
        if math.isfinite(self.epsilon):
            said.append(
                f"A site's whole update is hidden with epsilon {self.epsilon_round:.4g} in each round and "
                f"{self.epsilon:.4g} in all of them (delta 0)."
            )
        if self.epsilon_delta < self.epsilon:
            said.append(f"All rounds together: epsilon {self.epsilon_delta:.4g} at delta {self.delta:g}.")
        said.append(f"It holds against {self.resists}.")
        if self.defeated_by:
            said.append(f"It does not hold against {self.defeated_by}.")
        return tuple(said)


def label(terms: PrivacyTerms, scale: float) -> Label:
    """The label of a distributed placement.

    Args:
        scale: of the noise that is really added (`accounting.terms.round_noise(...).scale`): b, or sigma, that any
            active - colluding sites guarantee.

    Raises:
        HanseError: INVALID_INPUT as `check_distributed`.
    """
    privacy, active = terms.privacy, terms.active
    check_distributed(privacy, active)
    sensitivity = 2 * privacy.clip
    gaussian = privacy.mechanism in GAUSSIAN
    one_round = math.inf if gaussian else sensitivity / scale
    rho = (sensitivity / scale) ** 2 / 2 if gaussian else one_round**2 / 2
    at_delta = concentrated_epsilon(terms.rounds * rho, privacy.delta) if privacy.delta else math.inf
    literal = privacy.scale == "literal" and not gaussian
    resists, defeated_by = coalitions(privacy, active)
    return Label(
        noise=_law(privacy, active, scale),
        epsilon_round=one_round,
        epsilon=terms.rounds * one_round,
        epsilon_delta=at_delta,
        delta=privacy.delta,
        printed=one_round / active if literal else None,
        resists=resists,
        defeated_by=defeated_by,
        needs=least_answers(privacy, active),
    )


def coalitions(privacy: Privacy, active: int) -> tuple[str, str]:
    """Against whom a mode holds, and against whom not."""
    others, pairs = active - 1, min(PAIRS, active - 1)
    match privacy.noise:
        case "local-laplace":
            return f"any coalition, also of all {others} other sites and the hub: each site's own noise is whole", ""
        case "oblivious":
            return (
                f"the hub and whoever sees the model; {others} other sites that do not pool what they saw learn less",
                f"{others} other sites that pool what they sent and received: they leave no more than the variance of "
                "one Laplace variable, as if it were local, and no epsilon is proven for what is left",
            )
        case "oblivious-shuffled":
            return (
                "the hub and whoever sees the model; a coalition of all other sites that pool what they saw "
                f"leaves about {1 + others * pairs / (2 * (pairs + 1)):.3g} times the variance of one Laplace variable",
                f"{others} other sites and the compensator together: {(pairs + 2) / (2 * pairs + 2):.2g} times that is "
                "left, less than with local-laplace, and no epsilon is proven for it",
            )
        case _ if not privacy.colluding:
            return (
                "the hub and whoever sees the model, but for the sites themselves",
                f"a site, which knows its own share and so sees {others}/{active} of the noise, nor against sites that "
                "collude or drop out: colluding says how many of them are provided for",
            )
        case _:
            return (
                f"up to {privacy.colluding} sites that collude or drop out, the hub, and whoever sees the model",
                f"more than {privacy.colluding} sites that collude or drop out: the others' shares are less than the "
                f"noise that was asked for; one site's against all others are 1/{active - privacy.colluding} of it",
            )


def law_in_words(privacy: Privacy, active: int) -> str:
    """What the noise of a sum over `active` sites is, beside the noise that the guarantee needs: without its scale,
    which an accountant finds."""
    parts = max(1, parts_of(privacy, active))
    if privacy.mechanism in GAUSSIAN:
        return f"a sum of {active} discrete Gaussians, with {active / parts:.4g} times the variance that is needed"
    if privacy.noise != "distributed-gamma":
        close = ", close to normal" if active >= 30 else ""
        return (
            f"the sum of {active} Laplace variables{close}, with {active} times the variance of the one that is "
            "needed; not one Laplace variable"
        )
    if parts == active:
        return f"one Laplace variable, if all {active} sites' shares are in it"
    return (
        f"a variance-gamma variable, with {active / parts:.4g} times the variance of the Laplace variable that is "
        f"needed, of which any {parts} sites contribute a whole one"
    )


def printed_runs_epsilon(claimed: float, participants: int, coordinates: int, rounds: int) -> float:
    """What the runs of Mugunthan (2022, section 2.5) cost in pure privacy: n epsilon sqrt(d) R.

    The printed scale is n times too small for the sum, its sensitivity is an L2 bound while Laplace noise needs the L1
    bound, at most sqrt(d) times as large, and R rounds add up.
    """
    return participants * claimed * math.sqrt(coordinates) * rounds


def _law(privacy: Privacy, active: int, scale: float) -> str:
    noise = aggregate(privacy, active, scale)
    deviation = f"standard deviation {math.sqrt(noise.variance):.4g}"
    if privacy.mechanism in GAUSSIAN:
        return f"a sum of {active} discrete Gaussians, {deviation}"
    if noise.count == 1:
        return f"one discrete Laplace variable of scale {scale:.4g}, {deviation}"
    if privacy.noise == "distributed-gamma":
        return (
            f"a variance-gamma variable of {noise.count:.4g} Laplace({scale:.4g}), {deviation}, of which any "
            f"{active - privacy.colluding} sites contribute a whole one"
        )
    close = ", close to normal" if active >= 30 else ""
    return f"the sum of {active} Laplace variables of scale {scale:.4g}{close}, {deviation}; not one Laplace variable"
