"""Tables as sites have them, in CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Path:
    """Gives the path."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(rows)
    return path
