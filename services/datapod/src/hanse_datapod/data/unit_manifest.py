"""Whose each image of a folder is: by a file `units.csv` in it, with a line for each image.

Its columns are `file`, the path from the folder (`benign/17.png`), and the name that the project's schema gives to
units (`patient`). Names of files may be people's: messages tell lines, and what stands there stays in the site's log.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.check import mismatch
from hanse_fabric.errors import ErrorCode, HanseError, unfit

MANIFEST = "units.csv"
FILE = "file"


def whose_images(folder: Path, files: Sequence[str], unit: str, max_bytes: int) -> NDArray[np.str_] | None:
    """(n,) whose each image is, as the manifest has it; None where there is no manifest.

    Args:
        files: the images' paths from the folder, with slashes.
        unit: the column.
        max_bytes: of the manifest, at most.

    Raises:
        HanseError: SCHEMA_MISMATCH for a column that is missing, an image without a line or with two, a line without an
            image or a value; INVALID_INPUT where it is no CSV file in UTF-8; TOO_LARGE.
    """
    path, where = folder / MANIFEST, f"data {folder.name}: {MANIFEST}"
    if not path.is_file():
        return None
    if path.stat().st_size > max_bytes:
        raise HanseError(ErrorCode.TOO_LARGE, f"{where}: more than the {max_bytes} bytes that are allowed")
    try:
        given = dict(_lines(path, where, frozenset(files), unit))
    except (UnicodeDecodeError, csv.Error) as error:
        raise unfit(f"{where}: it is not a CSV file in UTF-8", str(error), code=ErrorCode.INVALID_INPUT) from None
    for number, name in enumerate(files, 1):
        if name not in given:
            raise mismatch(f"{where}: a line for each image was expected, image {number} has none", name)
    return np.array([given[name] for name in files])


def _lines(path: Path, where: str, files: frozenset[str], unit: str) -> Iterator[tuple[str, str]]:
    """Each line's image and whose it is."""
    seen: set[str] = set()
    with path.open(encoding="utf-8-sig", newline="") as text:
        table = csv.DictReader(text, strict=True)
        columns = list(table.fieldnames or ())
        for name in (FILE, unit):
            if columns.count(name) != 1:
                raise mismatch(
                    f"{where}: one column {name} was expected", f"{columns.count(name)} of {', '.join(columns)}"
                )
        for row in table:
            at = f"{where}, line {table.line_num}"
            file, whose = row[FILE], row[unit]
            if None in row or file not in files:
                raise mismatch(f"{at}: the path of an image from the folder was expected, such as 0/a.png", row)
            if not (whose or "").strip():
                raise mismatch(f"{at}: {unit}: a value was expected", "an empty cell")
            if file in seen:
                raise mismatch(f"{at}: this image has a line already", file)
            seen.add(file)
            yield file, whose.strip()
