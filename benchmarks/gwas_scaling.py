"""What a federated study sends, by SNPs, people and cohorts: `python benchmarks/gwas_scaling.py --record FILE`.

After Nasirigerdeh et al. (2022, Table S5, sets 2 to 4): logistic regression by deployed processes, one number changed
at a time. Bytes are those of the kernel's connections, from the sites and from the compensator.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from gwas_deployed import deployed
from gwas_studies import NAMES, Size, plan, study
from matplotlib.figure import Figure
from scratch import scratch

from hanse_genomics.simulation import simulate
from hanse_lab.measured import Finding, Measured, MeasuredClaim, write_measured
from hanse_lab.pictures import COLOURS, as_svg, label_ends, plain

SNPS, PEOPLE, COHORTS = 4_000, 500, 3
SETS = {"SNPs": (2_000, 4_000, 8_000, 16_000), "people a cohort": (250, 500, 1_000, 2_000), "cohorts": (3, 4, 5, 6)}
TESTS = ("chi_square", "logistic")


@dataclass(frozen=True, slots=True)
class Point:
    """A study, and what was sent in it: bytes from all sites, and from the compensator."""

    set: str
    value: int
    test: str
    sites: int
    compensator: int


def size(name: str, value: int) -> Size:
    """The study in which one number is another than usual."""
    snps = value if name == "SNPs" else SNPS
    people = value if name == "people a cohort" else PEOPLE
    cohorts = value if name == "cohorts" else COHORTS
    return Size(snps, ((people // 2, people - people // 2),) * cohorts)


async def measured(name: str, value: int, test: str, folder: Path) -> Point:
    """One study."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    made = await asyncio.to_thread(simulate, plan(size(name, value)), folder / "data")
    run = await deployed(made, study(test), folder / "hanse", phenotypes=["CASE", "TRAIT"], covariates=NAMES)
    return Point(name, value, test, run.usage.sent["sites"], run.usage.sent["compensator"])


async def points() -> list[Point]:
    """All studies; the usual one is measured once."""
    made: dict[tuple[Size, str], Point] = {}
    found = []
    for test in TESTS:
        for name, values in SETS.items():
            for value in values:
                with scratch("gwas-scaling") as folder:
                    key = size(name, value), test
                    if key not in made:
                        made[key] = await measured(name, value, test, Path(folder) / "study")
                    found.append(Point(name, value, test, made[key].sites, made[key].compensator))
                    print(found[-1], flush=True)
    return found


def claims(found: Sequence[Point]) -> list[MeasuredClaim]:
    """What they say of the paper's claims."""
    linear = {name: {test: _linear(_of(found, name, test)) for test in TESTS} for name in ("SNPs", "cohorts")}
    people = {test: _of(found, "people a cohort", test) for test in TESTS}
    ratios = {test: each[-1].sites / each[0].sites for test, each in people.items()}
    masks = max(1 + each.compensator / each.sites for each in found)
    told = "; ".join(f"{test}: {ratio:.2f} times the bytes of 250" for test, ratio in ratios.items())
    return [
        MeasuredClaim(
            says="traffic is independent of people",
            finding=_holds([abs(ratio - 1) < 0.02 for ratio in ratios.values()]),
            found=f"at 2,000 people a cohort {told} (logistic regression takes fewer iterations of more people)",
        ),
        *(
            MeasuredClaim(
                says=f"traffic is linear in {name}", finding=_holds([fit > 0.99 for fit in fits.values()]),
                found=", ".join(f"{test}: R2 = {fit:.4f}" for test, fit in fits.items()),
            )
            for name, fits in linear.items()
        ),
        MeasuredClaim(
            says="masks double what is sent", finding=_holds([masks > 1.9]),
            found=f"the compensator adds at most {100 * (masks - 1):.0f} % to what the sites send: one sum of masks "
            "for all of them, and each site seals a seed of 32 bytes for it",
        ),
    ]  # fmt: skip


def _of(found: Sequence[Point], name: str, test: str) -> list[Point]:
    return [point for point in found if (point.set, point.test) == (name, test)]


def _linear(line: Sequence[Point]) -> float:
    """R2 of a straight line through bytes by value."""
    fit = np.corrcoef([point.value for point in line], [point.sites for point in line])[0, 1]
    return float(fit**2)


def _holds(truths: Sequence[bool]) -> Finding:
    return "reproduced" if all(truths) else "in part" if any(truths) else "not reproduced"


def picture(found: Sequence[Point]) -> Figure:
    """Bytes from the sites by each number."""
    figure = Figure(figsize=(9.6, 2.6), layout="constrained")
    for number, name in enumerate(SETS):
        axes = figure.add_subplot(1, len(SETS), number + 1)
        ends = []
        for test, colour in zip(TESTS, COLOURS, strict=False):
            line = _of(found, name, test)
            values, sent = [point.value for point in line], [point.sites / 1e6 for point in line]
            axes.plot(values, sent, color=colour, linewidth=1.4, marker="o", markersize=3.5)
            ends.append((values[-1], sent[-1], test.replace("_", " "), colour))
        axes.set_ylim(bottom=0)
        axes.set_xlabel(name, fontsize=8)
        if not number:
            axes.set_ylabel("sent by all sites, MB", fontsize=8)
        plain(axes)
        axes.set_xticks([point.value for point in _of(found, name, TESTS[0])][0 if name == "cohorts" else 1 :])
        label_ends(axes, ends)
    return figure


def main() -> None:
    """Measure, and write the record and its picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True, help="its picture goes into the folder above")
    file = parser.parse_args().record
    found = asyncio.run(points())
    (file.parent.parent / f"{file.stem}.svg").write_bytes(as_svg(picture(found)))
    rows = [
        (f"{value:,} {name}", *(f"{_at(found, name, value, test).sites / 1e6:.2f} MB" for test in TESTS))
        for name, values in SETS.items()
        for value in values
    ]
    about = (
        f"One number changed at a time, from {SNPS:,} SNPs, {COHORTS} cohorts of {PEOPLE} people, and four covariates "
        "of the logistic regression, by deployed processes with masks (after Nasirigerdeh et al., 2022, Table S5). "
        "Bytes that all sites sent, as the kernel counts them; a fixed part are heartbeats, joins and the log. Seed 0."
    )
    record = Measured(
        title="What genome studies send", command=f"python benchmarks/gwas_scaling.py --record {file}", about=about,
        claims=tuple(claims(found)), table=(("", *(test.replace("_", " ") for test in TESTS)), *rows),
        picture=f"{file.stem}.svg", figures={"points": [asdict(point) for point in found]},
    )  # fmt: skip
    write_measured(file, record)


def _at(found: Sequence[Point], name: str, value: int, test: str) -> Point:
    return next(point for point in _of(found, name, test) if point.value == value)


if __name__ == "__main__":
    main()
