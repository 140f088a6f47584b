"""The simulated people: who is a case, in which cohort, with which covariates and ancestry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.simulation.plan import StudyPlan


@dataclass(frozen=True, slots=True)
class People:
    """The pool, ordered by cohort, within it by population.

    Attributes:
        case: bool (n,).
        cohort: int (n,): index of the plan's cohort.
        population: int (n,).
        sex: int (n,), 1 or 2.
        covariates: float64 (n, q) in their own units.
        scores: float64 (n,): what covariates and ancestry add to the quantitative trait.
    """

    case: NDArray[np.bool_]
    cohort: NDArray[np.int64]
    population: NDArray[np.int64]
    sex: NDArray[np.int8]
    covariates: NDArray[np.float64]
    scores: NDArray[np.float64]


def make_people(plan: StudyPlan) -> People:
    """Draw the pool and cut it into cohorts."""
    rng = np.random.Generator(np.random.PCG64([plan.seed, 0]))
    case = np.repeat([True, False], [sum(c.cases for c in plan.cohorts), sum(c.controls for c in plan.cohorts)])
    standard = rng.standard_normal((plan.samples, len(plan.covariates)))
    standard += case[:, None] * np.array([c.log_odds for c in plan.covariates])
    population = _populations(plan, case, rng)
    cohort = np.empty(plan.samples, dtype=np.int64)
    for status in (True, False):
        members = np.flatnonzero(case == status)
        counts = [c.cases if status else c.controls for c in plan.cohorts]
        cohort[members[_order(plan, standard[members], rng)]] = np.repeat(np.arange(len(counts)), counts)
    sex = rng.integers(1, 3, plan.samples).astype(np.int8)
    scores = standard @ np.array([c.trait for c in plan.covariates]) + plan.trait_shift * population
    values = standard * np.array([c.sd for c in plan.covariates]) + np.array([c.mean for c in plan.covariates])
    # Cases and controls mixed: nothing of a sample is told by its place.
    order = np.lexsort((rng.random(plan.samples), population, cohort))
    return People(case[order], cohort[order], population[order], sex[order], values[order], scores[order])


def _populations(plan: StudyPlan, case: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Controls are spread evenly; cases in proportion to the odds of their population."""
    weights = np.full(plan.populations, plan.case_odds) ** np.arange(plan.populations)
    among_cases = np.cumsum(weights / weights.sum())
    among_controls = np.arange(1, plan.populations + 1) / plan.populations
    u = rng.random(len(case))
    chosen = np.where(case, np.searchsorted(among_cases, u), np.searchsorted(among_controls, u))
    return np.minimum(chosen, plan.populations - 1)


def _order(plan: StudyPlan, standard: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """An order of people by the covariates that decide about their cohort, with the rest left to chance."""
    key = np.zeros(len(standard))
    left = 1.0
    for name, strength in plan.sorted_by.items():
        key += strength * standard[:, plan.covariate_names.index(name)]
        left = max(left - strength**2, 0.0)
    key += np.sqrt(left) * rng.standard_normal(len(standard))
    return np.argsort(key)
