"""The n - 1 collusion experiment (Mugunthan, 2022, section 2.5.4): all other sites together estimate one site's update.

The noise is drawn and chosen by the classes that sites and compensator run, in each mode. One weight over T
iterations, as T coordinates with noise of their own. An attack's worth is r^2, the squared Pearson correlation of its
estimates with the truth, which means nothing without sd(w_h)/lambda, the size of the update against the noise: it
stands beside each. Residual variance is in units of one Laplace variable's, 2 lambda^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.attacks.coalition import Adversary, Coalition, Integers, mean, naive, pooled, random
from hanse_privacy.noise.distributed import make_share
from hanse_privacy.noise.parts import PAIRS, Parts, width_for
from hanse_privacy.noise.shuffled import PairedNoise, choose, pack
from hanse_privacy.noise.source import NoiseSource

SPREAD = 1 / 0.2435
"""sd(w_h)/lambda at which noise that is not oblivious leaves r^2 = 0.894, as Mugunthan (2022) reports."""

_STEPS = 4096
_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class AttackOutcome:
    """What one adversary achieved.

    Attributes:
        noise: the mode of the noise; attack: who attacked.
        r2, predicted_r2: measured, and by the closed form.
        residual, predicted_residual: variance of the error, in units of 2 lambda^2.
        spread: sd(w_h)/lambda, as it was.
        mu, sigma: mean and standard deviation of |f - f'|/(|f| + 1) (Mugunthan, 2022, definition 2), f in units of
        lambda.
    """

    noise: str
    attack: str
    r2: float
    predicted_r2: float
    residual: float
    predicted_residual: float
    spread: float
    mu: float
    sigma: float


@dataclass(frozen=True, slots=True)
class _Attack:
    noise: str
    name: str
    run: Adversary
    residual: Callable[[int, int], float]
    """Of n sites with m pairs each."""
    helped_by: str = ""


ATTACKS = (
    _Attack("local-laplace", "pooled", pooled, lambda _n, _m: 1),
    _Attack("distributed-gamma", "pooled", pooled, lambda n, _m: 1 / n),
    _Attack("oblivious", "naive", naive, lambda n, _m: n),
    _Attack("oblivious", "random", random, lambda n, _m: n - 1 + 1 / n),
    _Attack("oblivious", "mean", mean, lambda n, _m: (n - 1) ** 2 / (2 * n) + 1),
    _Attack("oblivious", "pooled", pooled, lambda _n, _m: 1),
    _Attack("oblivious", "pooled, coins published", pooled, lambda n, _m: (n + 1) / (2 * n), "victim's coins"),
    _Attack("oblivious-shuffled", "pooled", pooled, lambda n, m: 1 + (n - 1) * m / (2 * m + 2)),
    _Attack(
        "oblivious-shuffled", "pooled with compensator", pooled, lambda _n, m: (m + 2) / (2 * m + 2), "compensator"
    ),
)
"""In the last but two, a control, the victim publishes its coins: the attack must get better."""


def run_collusion(
    sites: int = 100, iterations: int = 1000, *, spread: float = SPREAD, source: NoiseSource | None = None
) -> list[AttackOutcome]:
    """Play the sums and let each adversary estimate.

    Args:
        sites: n, 3 or more.
        iterations: T.
        spread: sd(w_h)/lambda.
        source: for tests.

    Raises:
        HanseError: INVALID_INPUT for numbers that are too small.
    """
    if sites < 3 or iterations < 10 or spread <= 0:
        raise invalid("sites, iterations, spread", (sites, iterations, spread), "3 or more, 10 or more, above 0")
    source = source or NoiseSource()
    pairs: dict[str, int] = {}
    seen: dict[_Attack, list[NDArray[np.float64]]] = {attack: [] for attack in ATTACKS}  # (2, count): truth, guess
    for start in range(0, iterations, _AT_ONCE):
        for mode in dict.fromkeys(attack.noise for attack in ATTACKS):
            updates = _updates(sites, min(_AT_ONCE, iterations - start), spread, source)
            drawn = _drawn(mode, sites, updates.shape[1], source)
            pairs[mode] = drawn.differences.shape[1]
            coalitions = drawn.coalitions(mode, updates, source)
            for attack in (attack for attack in ATTACKS if attack.noise == mode):
                guess = attack.run(coalitions[attack.helped_by], source)
                seen[attack].append(np.stack([updates[0], guess]) / _STEPS)
    return [
        _outcome(attack, attack.residual(sites, pairs[attack.noise]), *np.concatenate(both, axis=1))
        for attack, both in seen.items()
    ]


def run_reuse(sites: int = 30, rounds: int = 100, *, count: int = 200, source: NoiseSource | None = None) -> float:
    """What is left of the pooled residual in mode `oblivious` when the same parts are used in every round, and an
    update stays the same.

    Averaged over rounds, the receivers' coins cancel: 0.5 of one round's variance in the limit. Here the parts are used
    again on purpose; `NoiseSite` draws anew for every session.

    Returns:
        The residual's variance in units of 2 lambda^2; 1 with fresh parts in one round.
    """
    source = source or NoiseSource()
    updates = _updates(sites, count, SPREAD, source)
    drawn = _drawn("oblivious", sites, count, source)
    estimates = np.zeros(count)
    for _ in range(rounds):
        estimates += pooled(drawn.coalitions("oblivious", updates, source)[""], source) / rounds
    return float(np.mean(((estimates - updates[0]) / _STEPS) ** 2) / 2)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """All sites' noise: added (sites, count), differences (sites, pairs, count); the first site is the victim."""

    added: Integers
    differences: Integers

    def coalitions(self, mode: str, updates: Integers, source: NoiseSource) -> dict[str, Coalition]:
        """What all but the victim know, alone and with each helper that the mode has, after the coins were tossed."""
        count, none = updates.shape[1], self.differences[0, :0]
        drawn = self.differences[1:].reshape(-1, count)
        alone = Coalition(
            (updates + self.added).sum(axis=0), updates[1:], self.added[1:], drawn, none.sum(axis=0), none, none
        )
        match mode:
            case "local-laplace" | "distributed-gamma":
                return {"": alone}
            case "oblivious":  # the pair (i, j) is in row j, or j - 1 above i
                chosen = np.stack([_chosen(self._for(site), source) for site in range(len(updates))])
                alone = replace(
                    alone,
                    total=alone.total + chosen.sum(axis=0),
                    chosen=chosen[1:].sum(axis=0),
                    uncertain=self._for(0)[:, 0],
                    received=self.differences[0],
                )
                return {"": alone, "victim's coins": replace(alone, chosen=chosen.sum(axis=0), uncertain=none)}
            case "oblivious-shuffled":
                taken = _chosen(self.differences, source)
                alone = replace(alone, total=alone.total + taken, uncertain=drawn)
                helped = replace(alone, chosen=taken, uncertain=none, received=self.differences[0])
                return {"": alone, "compensator": helped}
            case _:
                raise invalid("noise", mode, "a mode that an attack is written for")

    def _for(self, receiver: int) -> Integers:
        """What the others send to one site: (sites - 1, 1, count)."""
        senders = [sender for sender in range(len(self.differences)) if sender != receiver]
        return np.stack([self.differences[sender, receiver - (receiver > sender)][None] for sender in senders])


def _drawn(mode: str, sites: int, count: int, source: NoiseSource) -> _Drawn:
    """The noise of all sites, as `hanse_privacy.noise.site` and `NoiseSite` draw it."""
    section = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": mode, "noise_multiplier": 1.0}
    terms = PrivacyTerms(privacy=Privacy.model_validate(section), rounds=1, round=1, active=sites)
    share = make_share(terms, _STEPS, 0)
    pairs = {"oblivious": sites - 1, "oblivious-shuffled": min(PAIRS, sites - 1)}.get(mode)
    if pairs is None:
        added = np.stack([share.sample_steps(count, source) for _ in range(sites)])
        return _Drawn(added, np.zeros((sites, 0, count), dtype=np.int64))
    noises = [PairedNoise(share.steps, pairs, source) for _ in range(sites)]
    return _Drawn(np.stack([noise.draw(count) for noise in noises]), np.stack([noise.differences for noise in noises]))


def _chosen(differences: Integers, source: NoiseSource) -> Integers:
    """The sum of what coins choose of what some sites have sent, (senders, pairs, count)."""
    width, (_, pairs, count) = width_for(_STEPS), differences.shape
    sent = [Parts(pairs, count, width, pack(each, width)) for each in differences]
    return choose(sent, source.words(4).tobytes())


def _updates(sites: int, count: int, spread: float, source: NoiseSource) -> Integers:
    """Updates of all sites, (sites, count). The victim's, the first, have the given spread; the others' do not matter,
    because the coalition knows them."""
    made = (source.words(sites * count) >> np.uint64(20)).astype(np.int64).reshape(sites, count)
    numbers = np.random.default_rng(int(source.words(1)[0])).standard_normal(count)  # data, not noise
    made[0] = np.rint(numbers * spread * _STEPS)
    return made


def _outcome(
    attack: _Attack, predicted: float, truth: NDArray[np.float64], guess: NDArray[np.float64]
) -> AttackOutcome:
    error = np.abs(truth - guess) / (np.abs(truth) + 1)
    return AttackOutcome(
        noise=attack.noise,
        attack=attack.name,
        r2=float(np.corrcoef(truth, guess)[0, 1] ** 2),
        predicted_r2=float(truth.var() / (truth.var() + 2 * predicted)),
        residual=float(np.var(guess - truth) / 2),
        predicted_residual=predicted,
        spread=float(truth.std()),
        mu=float(error.mean()),
        sigma=float(error.std()),
    )
