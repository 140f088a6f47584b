"""Everything that is made of a downloaded study: table, Parquet file, report with plots."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.wheels import to_install
from hanse_genomics.compare.agreement import GENOME_WIDE
from hanse_genomics.hub.collecting import inflation
from hanse_genomics.report import write_report
from hanse_genomics.results.parquet import write_parquet
from hanse_genomics.results.table import read
from hanse_genomics.results.tsv import write_tsv

RUN = "run.json"
TABLE, PARQUET = "results.tsv.gz", "results.parquet"


@dataclass(frozen=True, slots=True)
class Published:
    """What lies in the folder.

    Attributes:
        files: by name.
        without: files that were not made, and what to install for them.
        significant: SNPs with p up to 5e-8; inflation: None where nothing was tested.
    """

    files: tuple[str, ...]
    without: dict[str, str]
    test: str
    snps: int
    tested: int
    significant: int
    inflation: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def publish(folder: Path) -> Published:
    """Make table, Parquet file and report of the results in a folder.

    Raises:
        HanseError: NOT_FOUND and INVALID_INPUT as `results.table.read`; NO_SPACE.
    """
    results = read(folder)
    write_tsv(results, folder / TABLE)
    made, without = [TABLE], {}
    if importlib.util.find_spec("pyarrow") is not None:
        write_parquet(results, folder / PARQUET)
        made.append(PARQUET)
    else:
        without[PARQUET] = to_install("hanse-genomics[parquet]")
    if importlib.util.find_spec("matplotlib") is not None:
        made.append(write_report(results, folder, _run(folder)).name)
    else:
        without["report.html"] = to_install("hanse-genomics[report]")
    log10_p = results.column("log10_p")
    return Published(
        tuple(made), without, results.study.test, len(results), int(results.tested.sum()),
        int((log10_p <= math.log10(GENOME_WIDE)).sum()), inflation(log10_p),
    )  # fmt: skip


def _run(folder: Path) -> dict[str, Any]:
    """What the SDK noted of the run; nothing where it noted nothing."""
    path = folder / RUN
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: not JSON: {error}") from None
    return found if isinstance(found, dict) else {}
