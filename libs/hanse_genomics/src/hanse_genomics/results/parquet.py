"""Results as a Parquet file: every statistic with all its digits, for those who go on computing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.wheels import to_install
from hanse_genomics.arrays import Array
from hanse_genomics.files.snps import LABELS
from hanse_genomics.reasons import words
from hanse_genomics.results.table import Results

BLOCK = 65_536
_COUNTS = ("case_a1", "case_a2", "control_a1", "control_a2")
_APART = ("minor", "reason", "counts")


def write_parquet(results: Results, path: Path) -> None:
    """Write `results.parquet`, whole or not at all: SNPs with A1 and A2, then the statistics under Hanse's names, in
    float64; NaN becomes null; `reason` is null where a SNP was tested.

    Raises:
        HanseError: NOT_FOUND when pyarrow is not installed; NO_SPACE when the file cannot be written.
    """
    arrow, parquet = _pyarrow()
    a1, a2 = results.alleles()
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    writer = None
    try:
        for start in range(0, max(len(results), 1), BLOCK):
            rows = slice(start, start + BLOCK)
            columns = {
                "chromosome": [LABELS[code] for code in results.snps.code[rows].tolist()],
                "position": results.snps.position[rows],
                "snp": results.snps.name[rows],
                "a1": a1[rows],
                "a2": a2[rows],
                **_statistics(results, rows),
            }
            reasons = np.asarray(results.arrays["reason"])[rows].tolist()
            columns["reason"] = arrow.array([words(code) if code else None for code in reasons], arrow.string())
            table = arrow.table({name: _column(arrow, values) for name, values in columns.items()})
            if writer is None:
                writer = parquet.ParquetWriter(str(partial), table.schema, compression="zstd")
            writer.write_table(table)
        if writer is not None:
            writer.close()
        partial.replace(path)
    except OSError as error:
        raise HanseError(ErrorCode.NO_SPACE, f"{path}: cannot be written: {error.strerror}") from None
    finally:
        if writer is not None:
            writer.close()
        partial.unlink(missing_ok=True)


def _statistics(results: Results, rows: slice) -> dict[str, Array]:
    found: dict[str, Array] = {}
    if "counts" in results.arrays:
        counts = np.asarray(results.arrays["counts"])[rows]
        found |= {name: counts[:, at] for at, name in enumerate(_COUNTS[: counts.shape[1]])}
    plain = {name: array for name, array in results.arrays.items() if array.ndim == 1 and name not in _APART}
    return found | {name: array[rows] for name, array in sorted(plain.items())}


def _column(arrow: Any, values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return arrow.array(values, mask=np.isnan(values))
    if isinstance(values, np.ndarray):
        return arrow.array(values)
    return values if isinstance(values, arrow.Array) else arrow.array(values, arrow.string())


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise HanseError(
            ErrorCode.NOT_FOUND, "pyarrow: not installed", hint=to_install("hanse-genomics[parquet]")
        ) from None
    return pyarrow, parquet
