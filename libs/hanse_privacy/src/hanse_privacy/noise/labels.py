"""What noise is really worth, in plain words: for reports, the console and the documentation. No numpy.

Three claims that Mugunthan (2022, chapter 2) makes of oblivious noise do not hold, and the labels say what does. The
sum's noise is not one Laplace variable. The printed scale is that of a mean, so epsilon is n times what is printed.
`oblivious` noise does not resist a coalition that pools its views.
"""

from __future__ import annotations

from typing import assert_never

from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.noise.aggregate import GAUSSIAN, parts_of
from hanse_privacy.noise.parts import PAIRS


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
        case "distributed-gamma" | None:
            return _of_shares(privacy, active)
        case unknown:
            assert_never(unknown)


def _of_shares(privacy: Privacy, active: int) -> tuple[str, str]:
    """Of noise that is whole in the sum of all sites' shares alone."""
    colluding = privacy.colluding
    if not colluding:
        return (
            "the hub and whoever sees the model, but for the sites themselves",
            f"a site, which knows its own share and so sees {active - 1}/{active} of the noise, nor against sites that "
            "collude or drop out: colluding says how many of them are provided for",
        )
    if privacy.mechanism == "dp_ftrl":
        return (
            f"up to {colluding} sites that collude, the hub, and whoever sees the model; a round without "
            f"one of the {active} members is not summed",
            f"more than {colluding} sites that collude: the others' shares are less than the noise that was asked for",
        )
    return (
        f"up to {colluding} sites that collude or drop out, the hub, and whoever sees the model",
        f"more than {colluding} sites that collude or drop out: the others' shares are less than the "
        f"noise that was asked for; one site's against all others are 1/{active - colluding} of it",
    )


def law_in_words(privacy: Privacy, active: int) -> str:
    """What the noise of a sum over `active` sites is, beside the noise that the guarantee needs: without its scale,
    which an accountant finds."""
    parts = max(1, parts_of(privacy, active))
    if privacy.mechanism in GAUSSIAN:
        how = ", each correlated from round to round" if privacy.mechanism == "dp_ftrl" else ""
        return f"a sum of {active} discrete Gaussians{how}, with {active / parts:.4g} times the variance that is needed"
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
