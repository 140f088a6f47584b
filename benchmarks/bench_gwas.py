"""Federated studies beside PLINK 1.9 on the pooled files, in one run: `make bench-gwas [ARGS=--json]`.

For each test: the sum of the sites' processor time (datapod and worker, from submission to the run's end) over PLINK's,
wall clock, peak memory of a site, bytes between sites, compensator and hub, and whether the tables are equal at every
printed digit. `--scenarios` runs the six heterogeneity scenarios instead and prints the table of docs/gwas.md. With
--json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

import gwas_scenarios
from gwas_deployed import deployed, machine
from gwas_equality import compare, judged
from gwas_plink import plink
from gwas_studies import NAMES, PHENOTYPES, SIZES, Size, plan, study
from scratch import scratch

from hanse_genomics.compare import read_associations
from hanse_genomics.compare.tables import Associations
from hanse_genomics.files.cohort import open_cohort
from hanse_genomics.rehearsal import rehearse
from hanse_genomics.results import of_arrays, write_tsv
from hanse_genomics.simulation import Simulated, simulate
from hanse_lab.measured import Measured, write_measured
from hanse_lab.tables import markdown
from hanse_schemas.study import Study

TESTS = ("chi_square", "linear", "logistic")
SPLINK_GB = {"chi_square": 0.967, "linear": 2.49, "logistic": 11.06}
SPLINK_SNPS = 580_719
SPLINK_MINUTES = {"chi_square": 8, "linear": 20, "logistic": 75}


async def measure(test: str, made: Simulated, size: Size, folder: Path) -> dict[str, Any]:
    """One test: PLINK, then the platform, then their tables side by side."""
    if made.pooled is None:
        raise ValueError("the pooled files are what PLINK is run on")
    await asyncio.to_thread(folder.mkdir)
    load = machine()
    pooled = await asyncio.to_thread(plink, made.pooled, test, PHENOTYPES[test], NAMES, folder / "plink")
    run = await deployed(made, study(test), folder / "hanse", phenotypes=["CASE", "TRAIT"], covariates=NAMES)
    equal = await asyncio.to_thread(compare, run.table, pooled.table, run.tied)
    equality = equal.body()
    if equal.differences and test == "logistic":
        looked_at, right = await asyncio.to_thread(judged, equal.differences, made.pooled, PHENOTYPES[test], NAMES)
        equality |= {"judged": looked_at, "judged_as_statsmodels": right}
    usage, sites = run.usage, run.usage.cpu_s["sites"]
    links = {
        "sites_to_hub": usage.sent["sites"],
        "hub_to_sites": usage.received["sites"],
        "compensator_to_hub": usage.sent["compensator"],
    }
    traffic = sum(links.values()) / 1e9
    return {
        "cpu_over_plink": round(sites / pooled.cpu_s, 3),
        "wall_s": round(run.wall_s, 2),
        "site_peak_rss_mib": round(usage.peak_mib["sites"], 1),
        "traffic_gb": round(traffic, 4),
        "traffic_gb_by_link": {link: round(count / 1e9, 4) for link, count in links.items()},
        "traffic_over_splink": round(traffic * SPLINK_SNPS / size.snps / SPLINK_GB[test], 3),
        "sites_cpu_s": round(sites, 2),
        "plink_cpu_s": round(pooled.cpu_s, 2),
        "plink_wall_s": round(pooled.wall_s, 2),
        "wall_over_sites_cpu": round(run.wall_s / sites, 2),
        "services_cpu_s": {role: round(taken, 2) for role, taken in usage.cpu_s.items() if role != "sites"},
        "services_peak_mib": {role: round(mib, 1) for role, mib in usage.peak_mib.items() if role != "sites"},
        "equality": equality,
        "machine": load,
    }


async def linked(tests: list[str], made: Simulated, folder: Path, mbit: float) -> dict[str, Any]:
    """The platform alone, each site behind a link of `mbit` million bits a second in either direction."""
    figures: dict[str, Any] = {}
    for test in tests:
        await asyncio.to_thread((folder / test).mkdir)
        run = await deployed(
            made, study(test), folder / test / "hanse", phenotypes=["CASE", "TRAIT"], covariates=NAMES, mbit=mbit
        )
        figures[test] = {"mbit": mbit, "wall_s": round(run.wall_s, 1), "links": run.links, "machine": machine()}
        print(f"{test:12} {figures[test]}", flush=True)
    return figures


def federated(made: Simulated, folder: Path) -> Associations:
    """A scenario's logistic regression, by the same conductor, site functions and rings, in this process."""
    asked = Study(test="logistic", phenotype="CASE", covariates=gwas_scenarios.NAMES)
    cohorts = {
        name: open_cohort(prefix, asked, Path(f"{prefix}.pheno"), Path(f"{prefix}.cov"))
        for name, prefix in made.cohorts.items()
    }
    done = rehearse(asked, cohorts, folder)
    path = folder / "results.tsv.gz"
    write_tsv(of_arrays(done.results, done.summary), path)
    return read_associations(path)


def on_processes(made: Simulated, folder: Path) -> Associations:
    """The same by deployed processes."""
    section = {"test": "logistic", "phenotype": "CASE", "covariates": list(gwas_scenarios.NAMES)}
    run = asyncio.run(
        deployed(made, section, folder, phenotypes=["CASE"], covariates=list(gwas_scenarios.NAMES))
    )  # fmt: skip
    return read_associations(run.table)


def scenarios(arguments: argparse.Namespace) -> dict[str, Any]:
    """All six of COPDGene, or five of FinnGen."""
    shares = gwas_scenarios.FINNGEN if arguments.finngen else gwas_scenarios.COPDGENE
    by = on_processes if arguments.deployed else federated
    found = {name: gwas_scenarios.scenario(name, shares, by, snps=arguments.snps) for name in shares}
    table = gwas_scenarios.table(found, shares)
    print(markdown(table[0], table[1:]), flush=True)
    figures = {name: gwas_scenarios.figures(one) for name, one in found.items()}
    if arguments.record is not None:
        finngen = "--finngen " if arguments.finngen else ""
        where = "by deployed processes, with masks" if arguments.deployed else "in one process, by the same code"
        record = Measured(
            title="Genome studies of " + ("unequal cohorts" if arguments.finngen else "heterogeneous cohorts"),
            command=f"make bench-gwas ARGS='--scenarios {finngen}{'--deployed ' if arguments.deployed else ''}"
            f"--snps {arguments.snps} --record {arguments.record}'",
            about=gwas_scenarios.ABOUT[arguments.finngen] + f" {arguments.snps:,} SNPs, seed 11, {where}; "
            "a hit has p up to 0.05 over the number of SNPs.",
            claims=gwas_scenarios.claims(found, shares), table=table, figures=figures,
        )  # fmt: skip
        write_measured(arguments.record, record)
    return figures


async def studies(size: Size, tests: list[str], folder: Path, mbit: float | None = None) -> dict[str, Any]:
    """All tests on one simulated study."""
    made = await asyncio.to_thread(simulate, plan(size), folder / "data")
    if mbit is not None:
        return await linked(tests, made, folder, mbit)
    figures: dict[str, Any] = {}
    for test in tests:
        figures[test] = await measure(test, made, size, folder / test)
        for name, value in figures[test].items():
            print(f"{test:12} {name:22} {value}", flush=True)
        print(f"{test:12} sPLINK: {SPLINK_MINUTES[test]} min and {SPLINK_GB[test]} GB at COPDGene's size", flush=True)
    return figures | {"size": {"snps": size.snps, "samples": size.samples, "covariates": len(NAMES), "cohorts": 3}}


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", choices=[*TESTS, []], help="default: all")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--small", action="store_true", help="4,000 SNPs x 780 samples: a minute, for a first look")
    chosen.add_argument("--copdgene", action="store_true", help="580,000 SNPs x 5,343 samples")
    chosen.add_argument("--scenarios", action="store_true", help="the six scenarios of heterogeneous cohorts")
    parser.add_argument("--mbit", type=float, help="of each site's link to the hub (as root): time and bytes alone")
    parser.add_argument("--deployed", action="store_true", help="the scenarios by deployed processes, not in this one")
    parser.add_argument("--snps", type=int, default=10_000, help="of the scenarios")
    parser.add_argument("--finngen", action="store_true", help="the scenarios of unequal cohorts instead of COPDGene's")
    parser.add_argument("--record", type=Path, help="of the scenarios: a file for docs/results/records")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    # What is installed has its bytecode beside it; without it, a first study would be charged with compiling.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments.scenarios:
        figures = scenarios(arguments)
    else:
        size = SIZES["small" if arguments.small else "copdgene" if arguments.copdgene else "full"]
        with scratch("bench-gwas") as folder:
            figures = asyncio.run(studies(size, arguments.tests or list(TESTS), Path(folder), arguments.mbit))
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
