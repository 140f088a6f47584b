"""Names of a study's columns. No numpy here."""

from __future__ import annotations

from hanse_schemas.study import Study


def covariates(study: Study) -> tuple[str, ...]:
    """A study's covariates, in the order of the sites' columns: named ones, SEX, components."""
    components = tuple(f"PC{at + 1}" for at in range(study.structure.components))
    return (*study.covariates, *(("SEX",) if study.sex else ()), *components)
