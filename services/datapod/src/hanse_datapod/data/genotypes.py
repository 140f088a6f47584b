"""The site's genotypes before any study: its files, and the columns that the project's schema asks for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.settings import PLINK_FILES, DataSettings
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.files.bed import open_bed
from hanse_genomics.files.bim import read_bim
from hanse_genomics.files.cohort import Cohort
from hanse_genomics.files.columns import read_columns
from hanse_genomics.files.fam import Person, read_fam
from hanse_genomics.site import SiteStudy
from hanse_privacy.works.people import sketch
from hanse_schemas.schema import DataSchema, GenotypesSchema, OpenSchema


def check_genotypes(data: DataSettings, schema: DataSchema) -> dict[str, Any]:
    """Read the files and check them against the schema: the number of samples as `examples`, and a `fingerprint`.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT naming file, line, value and expectation; SCHEMA_MISMATCH.
    """
    if not isinstance(schema, GenotypesSchema | OpenSchema):
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH,
            f"data {data.prefix.name}: genotypes, the project's schema is of kind {schema.kind}",
            hint="a project of kind genotypes is for these data",
        )
    fam = read_fam(Path(f"{data.prefix}.fam"))
    snps = len(read_bim(Path(f"{data.prefix}.bim")))
    open_bed(Path(f"{data.prefix}.bed"), len(fam.ids), snps)
    if isinstance(schema, GenotypesSchema):
        _columns("phenotypes", data.phenotypes, schema.phenotypes, fam.ids)
        _columns("covariates", data.covariates, schema.covariates, fam.ids)
    return {"examples": len(fam.ids), "fingerprint": fingerprint(data)}


def complete_samples(cohort: Cohort) -> int:
    """People whose phenotype and covariates are known."""
    return int(np.count_nonzero(_complete(cohort)))


def people_of(cohort: Cohort) -> tuple[bytes, bytes]:
    """Sketches of the people whose phenotype and covariates are known (`hanse_privacy.works.people`): (with these, by
    their ids alone)."""
    known = _complete(cohort)
    told = np.column_stack([cohort.phenotype, cohort.covariates])
    ids = [f"{family} {person} ".encode() for (family, person), used in zip(cohort.ids, known, strict=True) if used]
    return sketch(name + row.tobytes() for name, row in zip(ids, told[known], strict=True)), sketch(ids)


def smaller_group(site: SiteStudy) -> int | None:
    """The number of cases, or of controls, whichever are fewer; None where the phenotype is a number."""
    if site.study.test == "linear":
        return None
    cases = site.cohort.phenotype[_complete(site.cohort)]
    return int(min(np.count_nonzero(cases == 1), np.count_nonzero(cases == 0)))


def version_of(data: DataSettings) -> str:
    """Changes when a file is written anew."""
    found = []
    for path in _files(data):
        if path.exists():
            stat = path.stat()
            found.append(f"{path.name}:{stat.st_mtime_ns}:{stat.st_size}")
    return "|".join(found)


def fingerprint(data: DataSettings) -> str:
    """SHA-256 over the text files; of the genotypes, which may be larger than memory, over size and date."""
    digest = hashlib.sha256()
    for path in _files(data):
        if not path.exists():
            continue
        stat = path.stat()
        digest.update(f"{path.suffix}:{stat.st_size}".encode())
        digest.update(str(stat.st_mtime_ns).encode() if path.suffix == ".bed" else path.read_bytes())
    return digest.hexdigest()


def _complete(cohort: Cohort) -> NDArray[np.bool_]:
    known: NDArray[np.bool_] = ~np.isnan(cohort.phenotype)
    if cohort.covariates.size:
        known &= ~np.isnan(cohort.covariates).any(axis=1)
    return known


def _files(data: DataSettings) -> list[Path]:
    beside = [path for path in (data.phenotypes, data.covariates) if path is not None]
    return [Path(f"{data.prefix}{ending}") for ending in PLINK_FILES] + beside


def _columns(what: str, path: Path | None, names: tuple[str, ...], people: list[Person]) -> None:
    if not names:
        return
    if path is None:
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH,
            f"{what}: this site has no file of them, the project's schema asks for {', '.join(names)}",
            hint=f"give --{what} FILE, with a header FID IID {' '.join(names)}",
        )
    read_columns(path, names, people)
