"""Makes the files of this folder: a small pool of made-up people, and what PLINK 1.9 says of it and of hapmap1.

Run from the repository's root with plink1.9 on the PATH:
`PYTHONPATH=tests .venv/bin/python tests/data/gwas/make_goldens.py`.
Tables are PLINK's, with their columns of words alone (no padding), packed with gzip.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path

from plink_oracle import make_pool, run

HERE = Path(__file__).parent
HAPMAP = HERE.parent / "hapmap1" / "whole" / "hapmap1_100"
CHROMOSOMES = ("1", "2", "23", "24", "25", "26")
LINEAR = ["--linear", "hide-covar"]
LOGISTIC = ["--logistic", "beta", "hide-covar"]

TABLES: dict[str, tuple[list[str], str]] = {
    "assoc": (["--pheno-name", "CASE", "--assoc"], "assoc"),
    "model": (["--pheno-name", "CASE", "--model", "trend-only"], "model"),
    "hwe": (["--pheno-name", "CASE", "--hardy"], "hwe"),
    "frq": (["--pheno-name", "CASE", "--freq"], "frq"),
    "lmiss": (["--pheno-name", "CASE", "--missing"], "lmiss"),
    "linear": (["--pheno-name", "TRAIT", *LINEAR], "assoc.linear"),
    "linear-covar": (["--pheno-name", "TRAIT", "--covar", "{pool}.cov", *LINEAR], "assoc.linear"),
    "logistic": (["--pheno-name", "CASE", *LOGISTIC], "assoc.logistic"),
    "logistic-covar": (
        ["--pheno-name", "CASE", "--covar", "{pool}.cov", "--covar-name", "AGE", *LOGISTIC],
        "assoc.logistic",
    ),
    "kept": (
        ["--pheno-name", "CASE", "--maf", "0.05", "--geno", "0.05", "--hwe", "0.05", "--write-snplist"],
        "snplist",
    ),
}
HAPMAP_TABLES: dict[str, tuple[list[str], str]] = {
    "hapmap1-assoc": (["--assoc"], "assoc"),
    "hapmap1-model": (["--model", "trend-only"], "model"),
    "hapmap1-linear": (["--pheno", "{pool}_quant.pheno", "--covar", "{pool}.cov", *LINEAR], "assoc.linear"),
    "hapmap1-logistic": (["--covar", "{pool}.cov", *LOGISTIC], "assoc.logistic"),
}


def packed(source: Path, target: Path) -> None:
    text = "\n".join(" ".join(line.split()) for line in source.read_text().splitlines()) + "\n"
    with target.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as squeezed:
        squeezed.write(text.encode())


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pool = make_pool(folder, snps=180, samples=300, seed=11, chromosomes=CHROMOSOMES).prefix
        for ending in ("bed", "bim", "fam", "cov", "pheno"):
            shutil.copy(f"{pool}.{ending}", HERE / f"pool.{ending}")
        for name, (arguments, ending) in TABLES.items():
            of_pool = [argument.format(pool=pool) for argument in arguments]
            run("plink1.9", pool, folder / "out", "--pheno", f"{pool}.pheno", *of_pool)
            packed(folder / f"out.{ending}", HERE / f"{name}.gz")
        for name, (arguments, ending) in HAPMAP_TABLES.items():
            of_hapmap = [argument.format(pool=HAPMAP) for argument in arguments]
            run("plink1.9", HAPMAP, folder / "out", *of_hapmap)
            packed(folder / f"out.{ending}", HERE / f"{name}.gz")


if __name__ == "__main__":
    main()
