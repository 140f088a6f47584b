"""PLINK 1.9 on the pooled files of a simulated study: its tables, and what it takes."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TESTS = {
    # Chi-square with what Hanse counts in the same pass: allele counts, missingness, Hardy-Weinberg.
    "chi_square": ["--assoc", "--freq", "--hardy", "--missing"],
    "linear": ["--linear", "hide-covar"],
    "logistic": ["--logistic", "beta", "hide-covar"],
}
_ENDINGS = {"chi_square": ".assoc", "linear": ".assoc.linear", "logistic": ".assoc.logistic"}


@dataclass(frozen=True, slots=True)
class PlinkRun:
    """Where the table lies, and seconds: user and system together, and on the clock."""

    table: Path
    cpu_s: float
    wall_s: float


def binary() -> str | None:
    """PLINK 1.9 as Debian or its makers name it; None where there is none."""
    local = Path(__file__).parent.parent / ".tools" / "bin" / "plink1.9"
    return str(local) if local.exists() else shutil.which("plink1.9")


def plink(prefix: Path, test: str, phenotype: str, covariates: Sequence[str], out: Path) -> PlinkRun:
    """One association test.

    Args:
        prefix: of .bed, .bim, .fam, .cov and .pheno.
        test: chi_square, linear or logistic.
        covariates: columns of the .cov file, for the regressions.
        out: prefix of what PLINK writes.

    Raises:
        FileNotFoundError: when PLINK 1.9 is not installed.
        subprocess.CalledProcessError: when it fails.
    """
    program = binary()
    if program is None:
        raise FileNotFoundError("plink1.9: not on the PATH (Debian: apt-get install plink1.9)")
    argv = [program, "--bfile", str(prefix), "--pheno", f"{prefix}.pheno", "--pheno-name", phenotype]
    if covariates and test != "chi_square":
        argv += ["--covar", f"{prefix}.cov", "--covar-name", ",".join(covariates)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([*argv, *_TESTS[test], "--out", str(out)], check=True, capture_output=True, env=environment)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return PlinkRun(out.with_name(out.name + _ENDINGS[test]), cpu, ended - began)
