"""The hub's steps of Firth's penalised logistic regressions: `firth`, which is cheap, and `penalised`, which ends.

At first, sites take the leverages of the information of the step before: a sum is as small as that of ordinary
regression, and most SNPs end so. Where a SNP separates the cases its leverages move much, and such steps oscillate or
creep. The SNPs that are left take Newton's steps on the penalised likelihood itself, and go back where it became
smaller, as Heinze and Schemper (2002) do.
"""

from __future__ import annotations

import numpy as np

from hanse_genomics.arrays import Arrays, Floats, Given
from hanse_genomics.hub.ascent import ascend
from hanse_genomics.hub.chunk_state import fail, finished, next_iteration, state_and_results
from hanse_genomics.hub.newton import newton
from hanse_genomics.hub.step import Finished, HubStep
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics.symmetric import packed_size, thirds
from hanse_privacy.joint import Settings
from hanse_schemas.study import TILE, Study

SETTLED = 1e-9
"""Length of a step, in standard errors, after which a SNP is done; the leverages' error is of the same size."""
CLOSE = 1e-7
"""The same of an exact step, which is taken: the error after it is far smaller."""
LAGGING, EXACT = 8, 120
"""Iterations of either kind: 250 SNPs of up to 5,000 people that separate cases in every way took 28 mostly, and 90."""
SMALLER = 1e-9
"""Relative change of the penalised likelihood that is rounding."""
AT_ONCE = 1 << 23
"""Elements of a site's sum, about: of more SNPs, the rest wait."""

_QUEUED = ("rows", "coefficients", "inverse")


def firth(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """A step whose leverages are those of the information of the step before, which is the same when it ends.

    Args:
        total: `sums`; given: `betas`, `state`.

    Returns:
        outputs `betas` (to the sites) and `state`, or `results` where nothing is left to do; facts `next`: firth,
        penalised or done, and `active`.
    """
    _, results = state_and_results(given["state"])
    iteration, rows = settings["iteration"], given["betas"]["rows"]
    step = newton(total["sums"], given["betas"]["coefficients"], inverse=True)
    done = step.definite & (step.length < SETTLED)
    if iteration == 1:
        done &= study.firth == "always"
    fail(results, rows[~step.definite], Reason.COLLINEAR)
    _estimated(results, rows[done], step.coefficients[done], step.se[done], np.full(int(done.sum()), iteration))
    left = step.definite & ~done
    going = {"rows": rows[left], "coefficients": step.coefficients[left], "inverse": step.inverse[left]}
    if iteration < LAGGING:
        return firth_next(going, {}, results)
    # Runs of release 0.1.0 carry more, which is of no use here.
    return _next_of({f"queued_{name}": going[name] for name in _QUEUED}, results)


def firth_next(betas: Arrays, state: Arrays, results: Arrays) -> Finished:
    """Go on with the SNPs that are left.

    Args:
        betas: their rows, coefficients and packed inverse of the information.
    """
    return next_iteration("firth", state, betas, results) if len(betas["rows"]) else finished(results)


def penalised(study: Study, settings: Settings, total: Arrays, given: Given) -> Finished:
    """An exact step of some SNPs; when all are done, those that wait begin.

    Args:
        total: `sums`, `third`; given: `betas`, `state`: of the last point of each that was good, coefficients, packed
            inverse, penalised log-likelihood and the step from it; how many steps it took.

    Returns:
        as `firth`.
    """
    state, results = state_and_results(given["state"])
    betas = given["betas"]
    rows, steps = betas["rows"], state["steps"] + 1
    made = ascend(total["sums"], total["third"], betas["coefficients"])
    begun = np.isfinite(state["value"])
    with np.errstate(invalid="ignore"):
        lower = made.value < state["value"] - SMALLER * np.abs(state["value"])
    back = begun & (~made.definite | lower)
    done = made.definite & ~back & (made.length < CLOSE)
    _estimated(results, rows[done], (betas["coefficients"] + made.step)[done], made.se[done], LAGGING + steps[done])
    fail(results, rows[~made.definite & ~begun], Reason.COLLINEAR)
    left = ~done & (made.definite | begun)
    late = left & (steps >= EXACT)
    fail(results, rows[late], Reason.NOT_CONVERGED)
    left &= ~late

    def either(former: Floats, now: Floats) -> Floats:
        chosen: Floats = np.where(back.reshape(-1, *[1] * (now.ndim - 1)), former, now)[left]
        return chosen

    base = either(state["base"], betas["coefficients"])
    step = either(state["step"] / 4, made.step)
    inverse = either(betas["inverse"], made.inverse)
    state |= {"base": base, "step": step, "value": either(state["value"], made.value), "steps": steps[left]}
    if left.any():
        following = {"rows": rows[left], "coefficients": base + step, "inverse": inverse}
        return next_iteration("penalised", state, following, results)
    return _next_of({name: state[name] for name in state if name.startswith("queued_")}, results)


def _next_of(queue: Arrays, results: Arrays) -> Finished:
    """Begin with as many of those who wait as a sum has room for: whole tiles, so that bits do not depend on it."""
    betas = {name: queue[f"queued_{name}"] for name in _QUEUED}
    if not len(betas["rows"]):
        return finished(results)
    columns = betas["coefficients"].shape[1]
    room = max(1, AT_ONCE // (thirds(columns) + 2 * packed_size(columns) + columns + 1))
    tile = betas["rows"] // TILE
    if room < len(tile):
        room = max(int(np.searchsorted(tile, tile[room])), int(np.searchsorted(tile, tile[0], side="right")))
    first = {name: value[:room] for name, value in betas.items()}
    state = {f"queued_{name}": value[room:] for name, value in betas.items()}
    count = len(first["rows"])
    state |= {
        "base": first["coefficients"], "step": np.zeros((count, columns)),
        "value": np.full(count, -np.inf), "steps": np.zeros(count),
    }  # fmt: skip
    return next_iteration("penalised", state, first, results)


def _estimated(results: Arrays, rows: Floats, coefficients: Floats, se: Floats, iterations: Floats) -> None:
    results["reason"][rows] = Reason.TESTED
    results["beta"][rows], results["se"][rows] = coefficients[:, -1], se
    results["iterations"][rows] = iterations
    results["firth"][rows] = 1


STEPS: dict[str, HubStep] = {"firth": firth, "penalised": penalised}
