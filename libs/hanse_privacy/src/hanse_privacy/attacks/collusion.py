"""The n - 1 collusion experiment (Mugunthan, 2022, section 2.5.4): all other sites together estimate one site's update.

One weight over T iterations, as T coordinates with noise of their own. An attack's worth is r^2, the squared Pearson
correlation of its estimates with the truth, which means nothing without sd(w_h)/lambda, the size of the update against
the noise: it stands beside each. Residual variance is in units of one Laplace variable's, 2 lambda^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_privacy.attacks import adversaries
from hanse_privacy.attacks.adversaries import Adversary
from hanse_privacy.attacks.parties import Encoded, Played, play_local, play_oblivious, play_shuffled, send_all
from hanse_privacy.noise.oblivious_plan import ObliviousPlan
from hanse_privacy.noise.source import NoiseSource

SPREAD = 1 / 0.2435
"""sd(w_h)/lambda at which noise that is not oblivious leaves r^2 = 0.894, as Mugunthan (2022) reports."""

_STEPS = 4096
_AT_ONCE = 250
_VICTIM = "site-0000"


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
    residual: Callable[[int], float]
    """In units of one part's variance, 2 lambda^2 / n."""
    with_shuffler: bool = False


ATTACKS = (
    _Attack("local-laplace", "non-oblivious", adversaries.own_noise, lambda n: n),
    _Attack("oblivious", "naive", adversaries.naive, lambda n: n * n),
    _Attack("oblivious", "random", adversaries.random, lambda n: n * n - n + 1),
    _Attack("oblivious", "difference", adversaries.difference, lambda n: 3 * (n - 1) ** 2 + n),
    _Attack("oblivious", "mean", adversaries.mean, lambda n: (n - 1) ** 2 / 2 + n),
    _Attack("oblivious", "pooled", adversaries.pooled, lambda n: n),
    _Attack("oblivious-shuffled", "pooled", adversaries.pooled, lambda n: (n - 1) ** 2 / 2 + n),
    _Attack("oblivious-shuffled", "pooled with compensator", adversaries.pooled, lambda n: (n - 1) / 2 + 1, True),
)


def run_collusion(
    sites: int = 100,
    iterations: int = 1000,
    *,
    spread: float = SPREAD,
    source: NoiseSource | None = None,
    noise: tuple[str, ...] = ("local-laplace", "oblivious", "oblivious-shuffled"),
) -> list[AttackOutcome]:
    """Play the sums and let each adversary estimate.

    Args:
        sites: n, 3 or more.
        iterations: T.
        spread: sd(w_h)/lambda.
        source: for tests.
        noise: the modes to play.

    Raises:
        HanseError: INVALID_INPUT for numbers that are too small.
    """
    if sites < 3 or iterations < 10 or spread <= 0:
        raise invalid("sites, iterations, spread", (sites, iterations, spread), "3 or more, 10 or more, above 0")
    source = source or NoiseSource()
    truth: dict[str, list[NDArray[np.float64]]] = {attack: [] for attack in noise}
    guesses: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for start in range(0, iterations, _AT_ONCE):
        count = min(_AT_ONCE, iterations - start)
        for mode in noise:
            plan = _plan(f"{mode}/{start}", sites, count)
            encoded = _updates(plan, spread, source)
            truth[mode].append(encoded[_VICTIM].view(np.int64) / _STEPS)
            played = _play(mode, plan, encoded, source)
            for attack in (attack for attack in ATTACKS if attack.noise == mode):
                coalition = played.coalition(_VICTIM, with_shuffler=attack.with_shuffler)
                guesses.setdefault((mode, attack.name), []).append(attack.run(coalition, source) / _STEPS)
    return [
        _outcome(attack, sites, np.concatenate(truth[attack.noise]), np.concatenate(guesses[attack.noise, attack.name]))
        for attack in ATTACKS
        if attack.noise in noise
    ]


def run_reuse(sites: int = 30, rounds: int = 100, *, count: int = 200, source: NoiseSource | None = None) -> float:
    """What is left of the pooled residual when the same tuples are used in every round, and an update stays the same.

    Averaged over rounds, the receivers' coins cancel: 0.5 of one round's variance in the limit.
    Here the tuples are used again on purpose; `Attempts` refuses it everywhere else.

    Returns:
        The residual's variance in units of 2 lambda^2; 1 with fresh tuples in one round.
    """
    source = source or NoiseSource()
    plan = _plan("reuse", sites, count)
    encoded, senders = _updates(plan, SPREAD, source), send_all(plan, source)
    estimates = np.zeros(count)
    for _ in range(rounds):
        played = play_oblivious(plan, encoded, source, senders)
        estimates += adversaries.pooled(played.coalition(_VICTIM), source) / rounds
    error = (estimates - encoded[_VICTIM].view(np.int64)) / _STEPS
    return float(np.mean(error**2) / 2)


def run_control(sites: int = 100, iterations: int = 1000, *, source: NoiseSource | None = None) -> AttackOutcome:
    """The negative control: the victim publishes its coins, and the pooled attack must get better.

    The members' parts for it become known as well: a residual of (n - 1)/2 + 1 parts.
    """
    source = source or NoiseSource()
    attack = _Attack("oblivious", "pooled, coins published", adversaries.pooled, lambda n: (n - 1) / 2 + 1)
    truth, guesses = [], []
    for start in range(0, iterations, _AT_ONCE):
        plan = _plan(f"control/{start}", sites, min(_AT_ONCE, iterations - start))
        encoded = _updates(plan, SPREAD, source)
        played = play_oblivious(plan, encoded, source)
        coalition = played.coalition(_VICTIM)
        rest = adversaries.pooled(coalition, source)
        published = played.views[_VICTIM].received
        for site in coalition.sites:
            row = site.receivers.index(_VICTIM)
            one, two = (site.noise[index, row].view(np.int64).astype(np.float64) for index in range(2))
            rest += (one + two) / 2 - np.where(published[site.name].coins, two, one)
        truth.append(encoded[_VICTIM].view(np.int64) / _STEPS)
        guesses.append(rest / _STEPS)
    return _outcome(attack, sites, np.concatenate(truth), np.concatenate(guesses))


def _play(mode: str, plan: ObliviousPlan, encoded: Encoded, source: NoiseSource) -> Played:
    if mode == "local-laplace":
        return play_local(encoded, plan.steps, source)
    return (play_oblivious if mode == "oblivious" else play_shuffled)(plan, encoded, source)


def _plan(session: str, sites: int, count: int) -> ObliviousPlan:
    names = tuple(f"site-{number:04}" for number in range(sites))
    return ObliviousPlan(session, names, count, _STEPS)


def _updates(plan: ObliviousPlan, spread: float, source: NoiseSource) -> dict[str, NDArray[np.uint64]]:
    """Updates of all sites. The victim's have the given spread; the others' do not matter, because the coalition knows
    them."""
    made = {name: source.words(plan.count) >> np.uint64(20) for name in plan.participants}
    numbers = np.random.default_rng(int(source.words(1)[0])).standard_normal(plan.count)  # data, not noise
    made[_VICTIM] = np.rint(numbers * spread * _STEPS).astype(np.int64).view(np.uint64)
    return made


def _outcome(attack: _Attack, sites: int, truth: NDArray[np.float64], guess: NDArray[np.float64]) -> AttackOutcome:
    predicted = attack.residual(sites) / sites
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
