"""Results as PLINK's table: tab-separated, gzipped, the same bytes for the same results, in bounded memory."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.results.columns import columns_of
from hanse_genomics.results.table import Results

BLOCK = 16_384
_LEVEL = 5  # as small as level 9 within 2 %, in a third of its time


def write_tsv(results: Results, path: Path) -> None:
    """Write `results.tsv.gz`, whole or not at all.

    Raises:
        HanseError: NO_SPACE when it cannot be written.
    """
    columns = columns_of(results.study)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
            file.write(("\t".join(columns) + "\n").encode())
            for start in range(0, len(results), BLOCK):
                rows = slice(start, start + BLOCK)
                texts = [column(results, rows).tolist() for column in columns.values()]
                file.write("".join("\t".join(row) + "\n" for row in zip(*texts, strict=True)).encode())
        partial.replace(path)
    except OSError as error:
        raise HanseError(ErrorCode.NO_SPACE, f"{path}: cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
