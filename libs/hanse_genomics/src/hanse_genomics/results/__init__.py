"""Results as people use them: PLINK's table, Parquet, and what reads them again."""

from __future__ import annotations

from hanse_genomics.results.parquet import write_parquet
from hanse_genomics.results.table import Results, of_arrays, read, write
from hanse_genomics.results.tsv import write_tsv

__all__ = ["Results", "of_arrays", "read", "write", "write_parquet", "write_tsv"]
