"""How a run's epsilon and delta are parted between its preparation and its rounds: by basic composition, so that both
together keep what the job says, in whichever order and however one follows from the other. No numpy.
"""

from __future__ import annotations

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import USUAL_SHARE, Privacy


def require_one_epsilon(privacy: Privacy) -> None:
    """Check that all who add shares of a sum's noise make them by one epsilon. Each is charged for the noise of all, so
    one with a smaller epsilon than the others' would be charged for more noise than these make with it.

    Raises:
        HanseError: INVALID_INPUT for a section with an epsilon of some site's own and placement `distributed`.
    """
    if privacy.placement == "distributed" and privacy.site_epsilon:
        raise invalid(
            "privacy.site_epsilon", f"{len(privacy.site_epsilon)} sites", "none with placement distributed",
            hint="all sites share the noise of a sum: use placement local, or one epsilon for all",
        )  # fmt: skip


def share_of(privacy: Privacy) -> float:
    """Of the epsilon and delta of a participant who has an epsilon: what the preparation has of them."""
    return 0.0 if privacy.preparation is None else privacy.preparation.share or USUAL_SHARE


def of_rounds(privacy: Privacy) -> Privacy:
    """The section with what the rounds alone may cost."""
    kept = 1.0 - share_of(privacy)
    if kept == 1.0:
        return privacy
    return privacy.model_copy(
        update={
            "epsilon": None if privacy.epsilon is None else kept * privacy.epsilon,
            "delta": kept * privacy.delta,
            "site_epsilon": {name: kept * epsilon for name, epsilon in privacy.site_epsilon.items()},
        }
    )


def of_preparation(privacy: Privacy, participant: str) -> tuple[float | None, float, float | None]:
    """(epsilon, delta, noise multiplier) of the preparation at a participant: epsilon, or else the multiplier."""
    share, epsilon = share_of(privacy), privacy.site_epsilon.get(participant, privacy.epsilon)
    if epsilon is not None:
        return share * epsilon, share * privacy.delta, None
    return None, share * privacy.delta, None if privacy.preparation is None else privacy.preparation.noise_multiplier
