"""PLINK's files at a site: .bed, .bim, .fam, and phenotypes and covariates by person."""

from __future__ import annotations

from hanse_genomics.files.cohort import Cohort, open_cohort
from hanse_genomics.files.matching import Matched, match
from hanse_genomics.files.snps import CommonSnps, SnpTable

__all__ = ["Cohort", "CommonSnps", "Matched", "SnpTable", "match", "open_cohort"]
