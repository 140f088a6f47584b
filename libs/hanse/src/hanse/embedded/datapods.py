"""Datapods of this machine as supervised processes: for the demonstration, tests and benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hanse.embedded.processes import ChildSpec

# Training is single-threaded for its bits; more threads would only stand in each other's way.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def datapod(
    name: str, *, home: Path, url: str, token: str, data: Path, test: Path | None = None, policy: Path | None = None,
    phenotypes: Path | None = None, covariates: Path | None = None,
) -> ChildSpec:  # fmt: skip
    """A datapod that joins at its first start and runs until it is stopped.

    Args:
        home: folder for its identity and state.
        url, token: where and how it joins; not used once it has joined.
        data, test: its files; of genotypes the prefix of .bed, .bim and .fam.
        phenotypes, covariates: beside genotypes.
    """
    argv = [sys.executable, "-m", "hanse_datapod", "run", "--home", str(home), "--data", str(data)]
    argv += ["--join-url", url, "--token", token]
    named = {"--test": test, "--policy": policy, "--phenotypes": phenotypes, "--covariates": covariates}
    for option, path in named.items():
        if path is not None:
            argv += [option, str(path)]
    return ChildSpec(f"datapod-{name}", argv, _ENVIRONMENT)


def multiplexed(
    name: str, *, homes: Sequence[Path], listing: Path, data: Path, test: Path, policy: Path | None = None
) -> ChildSpec:
    """Many sites that have joined already, served by one process.

    Args:
        homes: their folders.
        listing: file to list them in.
        data, test: one for all, or with `{name}` for the name of each one's folder.
    """
    listing.write_text("".join(f"{home}\n" for home in homes))
    argv = [sys.executable, "-m", "hanse_datapod", "run", "--homes-file", str(listing)]
    argv += ["--data", str(data), "--test", str(test)]
    if policy is not None:
        argv += ["--policy", str(policy)]
    return ChildSpec(f"datapods-{name}", argv, _ENVIRONMENT)
