"""What a chunk of logistic regressions carries from one iteration to the next: the SNPs that go on, and the results."""

from __future__ import annotations

import numpy as np

from hanse_genomics.arrays import Array, Arrays
from hanse_genomics.hub.step import Finished
from hanse_genomics.reasons import Reason
from hanse_genomics.statistics import tails

_RESULTS = "results_"


def state_and_results(state: Arrays) -> tuple[Arrays, Arrays]:
    """The state and the results in it, which may be changed."""
    results = {name.removeprefix(_RESULTS): np.array(value) for name, value in state.items() if _of_results(name)}
    return {name: value for name, value in state.items() if not _of_results(name)}, results


def next_iteration(step: str, state: Arrays, betas: Arrays, results: Arrays) -> Finished:
    """Ask the sites for sums at new coefficients.

    Args:
        betas: what the sites need: `rows` and `coefficients` at least.
    """
    kept = {f"{_RESULTS}{name}": value for name, value in results.items()}
    return Finished({"betas": betas, "state": {**state, **kept}}, {"next": step, "active": len(betas["rows"])})


def finished(results: Arrays) -> Finished:
    """The chunk's results, by A1."""
    sign = np.where(results["minor"] == 1, -1.0, 1.0)
    results["beta"] = results["beta"] * sign
    results["stat"] = results["beta"] / results["se"]
    results["p"], results["log10_p"] = tails.normal(results["stat"])
    results["iterations"] = np.where(results["reason"] == Reason.TESTED, results["iterations"], np.nan)
    return Finished({"results": results}, {"next": "done", "active": 0})


def fail(results: Arrays, rows: Array, reason: Reason) -> None:
    """Give SNPs a reason, whatever they had."""
    results["reason"][rows] = reason


def _of_results(name: str) -> bool:
    return name.startswith(_RESULTS)
