"""Privacy in the lab: noise that repeats with the seed, and what it would cost a ledger."""

from __future__ import annotations

import hashlib
import threading

from hanse_privacy.accounting.accountant import Accountant, make_accountant
from hanse_privacy.accounting.terms import RoundNoise
from hanse_privacy.noise.source import NoiseSource


def noise_source(seed: int, *names: str | int) -> NoiseSource:
    """A stream of its own for each seed and names. It protects nobody: the seed is in the experiment's file."""
    text = "\0".join(map(str, (seed, *names)))
    return NoiseSource(hashlib.sha256(text.encode()).digest())


class Spent:
    """What the rounds of a cell have cost, site by site."""

    def __init__(self) -> None:
        self._by_site: dict[str, Accountant] = {}
        self._charging = threading.Lock()  # sites that sum inside a step train side by side

    def charge(self, site: str, noise: RoundNoise) -> None:
        """Add a round of a site; of noise that is charged once a run, the first."""
        with self._charging:
            if noise.unit == "run" and site in self._by_site:
                return
            accountant = self._by_site.setdefault(site, make_accountant())
            for event, count in noise.charged:
                accountant.compose(event, count)

    def epsilon(self, delta: float) -> float | None:
        """Of the site that has spent most; None: no round had noise."""
        return max((each.epsilon(delta) for each in self._by_site.values()), default=None)
