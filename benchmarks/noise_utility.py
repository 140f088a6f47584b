"""What noise costs, by epsilon and number of sites: `python benchmarks/noise_utility.py --record FILE`.

After Mugunthan (2022, chapter 2, Figs. 2-2 and 2-3): federated logistic regression with a Laplace variable of scale
2 / (sites * examples * epsilon) in each weight of each site, drawn by the code that sites draw with. His data are Adult
census records; these are made from a seed, as wide, and as unbalanced.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hanse_lab.measured import Finding, Measured, MeasuredClaim, write_measured
from hanse_lab.pictures import COLOURS, as_svg, plain
from hanse_learning.metrics import confusion, matthews
from hanse_privacy.noise.mechanisms import Laplace, add
from hanse_privacy.noise.source import NoiseSource

SITES, SEEDS = (50, 100, 200, 500), (0, 1, 2)
EPSILONS = (5e-7, 5e-6, 1e-5, 5e-5, 5e-4, None)
"""None: no noise."""
WIDTH, RECORDS, TESTED, EACH = 104, 30_000, 10_000, 200
ROUNDS, STEPS, RATE = 10, 20, 1.0
Floats = NDArray[np.float32]
Found = dict[tuple[int, float | None], list[float]]
"""MCC by seed, of (sites, epsilon)."""


def people(seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """x (n, 105) with rows of norm up to 1 and an intercept, y (n,) of which a quarter is 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(RECORDS + TESTED, WIDTH)) * rng.gamma(1.0, size=WIDTH)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    told = 6 * x @ rng.normal(size=WIDTH) / np.sqrt(np.mean(x**2) * WIDTH**2) ** 0.5 + rng.logistic(size=len(x))
    y = (told > np.quantile(told, 0.75)).astype(np.int64)
    return np.c_[x, np.ones(len(x))].astype(np.float32), y


def trained(sites: int, epsilon: float | None, seed: int) -> float:
    """The MCC, on people whom nobody has trained on, of the model after all rounds."""
    x, y = people(seed)
    rng, source = np.random.default_rng([seed, sites]), NoiseSource(seed.to_bytes(32, "big"))
    weights = np.zeros(WIDTH + 1, np.float32)
    for _ in range(ROUNDS):
        chosen = rng.integers(0, RECORDS, (sites, EACH))  # each site draws its people anew
        local = _descended(np.tile(weights, (sites, 1)), x[chosen], y[chosen].astype(np.float32))
        if epsilon is not None:
            noisy = add(local.astype(np.float64), Laplace(2 / (sites * EACH * epsilon)), source)
            local = noisy.astype(np.float32)
        weights = local.mean(axis=0)
    said = (x[RECORDS:] @ weights > 0).astype(np.int64)
    return matthews(confusion(y[RECORDS:], said, 2))


def _descended(weights: Floats, x: Floats, y: Floats) -> Floats:
    """Gradient steps of all sites: weights (sites, 105), x (sites, people, 105), y (sites, people)."""
    for _ in range(STEPS):
        odds = 0.5 + 0.5 * np.tanh(np.matmul(x, weights[..., None])[..., 0] / 2)
        weights = weights - RATE / EACH * np.matmul((odds - y)[:, None], x)[:, 0]
    return weights


def claims(found: Found) -> list[MeasuredClaim]:
    """What is found of the thesis's claims."""
    mean = {place: statistics.fmean(values) for place, values in found.items()}
    by_sites = [mean[sites, 1e-5] for sites in SITES]
    loss = {sites: mean[sites, None] - mean[sites, 5e-4] for sites in SITES}
    below = [mean[200, epsilon] for epsilon in (5e-4, 5e-5, 1e-5, 5e-6)]
    lowest = [max(found[sites, 5e-7]) for sites in SITES]

    def told(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.3f}" for value in values)

    return [
        MeasuredClaim(
            says="MCC grows with the number of sites", finding=_holds(by_sites == sorted(by_sites)),
            found=f"epsilon 1e-5: {told(by_sites)} for {', '.join(map(str, SITES))} sites",
        ),
        MeasuredClaim(
            says="with epsilon 5e-4 the MCC is that without noise",
            finding=_holds(max(loss.values()) < 0.01, in_part=min(loss.values()) < 0.01),
            found=f"loss {told([*loss.values()])} for {', '.join(map(str, SITES))} sites",
        ),
        MeasuredClaim(
            says="200 sites lose much below epsilon 5e-5", finding=_holds(below[3] < below[1] - 0.1),
            found=f"{told(below)} at 5e-4, 5e-5, 1e-5, 5e-6",
        ),
        MeasuredClaim(
            says="with epsilon 5e-7 nobody learns", finding=_holds(max(lowest) < 0.1),
            found=f"largest of the seeds {told(lowest)} for {', '.join(map(str, SITES))} sites",
        ),
    ]  # fmt: skip


def _holds(truth: bool, *, in_part: bool = False) -> Finding:
    return "reproduced" if truth else "in part" if in_part else "not reproduced"


def picture(found: Found) -> Figure:
    """MCC by epsilon, a line for each number of sites, without noise at the right."""
    figure = Figure(figsize=(5.6, 3.0), layout="constrained")
    axes = figure.add_subplot()
    places = [*range(len(EPSILONS))]
    for sites, colour in zip(SITES, COLOURS, strict=False):
        columns = [found[sites, epsilon] for epsilon in EPSILONS]
        mean = [statistics.fmean(values) for values in columns]
        axes.fill_between(places, [min(each) for each in columns], [max(each) for each in columns], color=colour,
                          alpha=0.2, linewidth=0)  # fmt: skip
        axes.plot(places, mean, color=colour, linewidth=1.4, marker="o", markersize=3.5)
        apart = places[2], mean[2]
        axes.annotate(f"{sites} sites", apart, xytext=(-2, 6), textcoords="offset points", fontsize=8, color=colour,
                      ha="right")  # fmt: skip
    axes.set_xlabel("epsilon of a round", fontsize=8)
    axes.set_ylabel("Matthews correlation", fontsize=8)
    plain(axes)
    axes.set_xticks(places, [_named(epsilon) for epsilon in EPSILONS])
    return figure


def _named(epsilon: float | None) -> str:
    return "no noise" if epsilon is None else f"{epsilon:.0e}".replace("e-0", "e-")


def main() -> None:
    """Train, and write the record and its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True, help="its picture goes into the folder above")
    file = parser.parse_args().record
    found: Found = {}
    for sites in SITES:
        for epsilon in EPSILONS:
            found[sites, epsilon] = [trained(sites, epsilon, seed) for seed in SEEDS]
            print(f"{sites} sites, {_named(epsilon)}: {found[sites, epsilon]}", flush=True)
    record(found, file)


def record(found: Found, file: Path) -> None:
    """Write the record, and its picture into the folder above."""
    (file.parent.parent / f"{file.stem}.svg").write_bytes(as_svg(picture(found)))
    rows = [
        (f"{sites} sites", *(f"{statistics.fmean(found[sites, epsilon]):.3f}" for epsilon in EPSILONS))
        for sites in SITES
    ]
    about = (
        "Matthews correlation of a federated logistic regression against the epsilon of a round's noise and the number "
        f"of sites (after Mugunthan, 2022, Figs. 2-2 and 2-3): {ROUNDS} rounds, {EACH} people a site drawn anew in "
        f"each, {WIDTH} features and an intercept from seeds {', '.join(map(str, SEEDS))}, a quarter of the labels 1. "
        "Which epsilon hurts depends on how large the weights grow, and so on the learning rate, here 1. "
        "Noise as the thesis prints it; docs/privacy.md says that it costs the number of sites times that epsilon."
    )
    made = Measured(
        title="What noise costs, by epsilon and sites", about=about, claims=tuple(claims(found)),
        command=f"python benchmarks/noise_utility.py --record {file}", table=(("", *map(_named, EPSILONS)), *rows),
        picture=f"{file.stem}.svg",
        figures={f"{sites} sites, {_named(epsilon)}": found[sites, epsilon] for sites, epsilon in found},
    )  # fmt: skip
    write_measured(file, made)


if __name__ == "__main__":
    main()
