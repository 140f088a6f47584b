"""PLINK 1.9 on a fileset, where it is installed: the oracle that a federated study is laid beside."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.study import Study

_TESTS: dict[str, tuple[list[str], str]] = {
    "chi_square": (["--assoc"], ".assoc"),
    "trend": (["--model", "trend-only"], ".model"),
    "linear": (["--linear", "hide-covar"], ".assoc.linear"),
    "logistic": (["--logistic", "beta", "hide-covar"], ".assoc.logistic"),
}
_NAMES = ("plink1.9", "plink")
LIMIT_S = 3600.0


def plink_program() -> str | None:
    """PLINK 1.9's program; None where it is not installed."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def plink_table(program: str, study: Study, prefix: Path, out: Path, *, intervals: bool = False) -> Path:
    """Run a study's test.

    Args:
        prefix: of .bed, .bim, .fam; .pheno and .cov lie beside them, where the study names columns.
        out: prefix of what PLINK writes.
        intervals: whether the table has standard errors, too, with the columns that `--ci` adds.

    Returns:
        the table's path.

    Raises:
        HanseError: INTERNAL with what PLINK said; TIMEOUT.
    """
    options, ending = _TESTS[study.test]
    argv = [program, "--bfile", str(prefix), *options, "--out", str(out)]
    if study.phenotype:
        argv += ["--pheno", f"{prefix}.pheno", "--pheno-name", study.phenotype]
    if study.covariates:
        argv += ["--covar", f"{prefix}.cov", "--covar-name", ",".join(study.covariates)]
    if study.sex:
        argv.append("--sex")
    if intervals and study.test != "trend":
        argv += ["--ci", "0.95"]
    try:
        subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S)
    except subprocess.CalledProcessError as error:
        raise HanseError(ErrorCode.INTERNAL, f"{program}: failed: {(error.stdout + error.stderr)[-300:]}") from None
    except subprocess.TimeoutExpired:
        raise HanseError(ErrorCode.TIMEOUT, f"{program}: not done within {LIMIT_S:g} s") from None
    return out.with_name(out.name + ending)
