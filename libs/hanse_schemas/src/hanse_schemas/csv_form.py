"""How a CSV file is written: commas, semicolons or tabs between values, a point or a comma in numbers. Programs of
other countries write other forms, so it is seen in the file, or said. Loads neither numpy nor pandas."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal

from hanse_fabric.errors import ErrorCode, unfit

Separator = Literal["auto", ",", ";", "\t"]
Decimal = Literal["auto", ".", ","]
Encoding = Literal[
    "utf-8", "utf-16", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp850", "iso-8859-1", "iso-8859-2",
    "iso-8859-15", "mac-roman", "shift_jis", "gb18030", "euc-kr",
]  # fmt: skip
"""Of text. Nothing in a file shows which of them it is, so none but UTF-8 is taken unsaid."""

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_LONGEST_HEADER = 1 << 20
_WITH_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")
_BY_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")


def codec_of(encoding: Encoding) -> str:
    """What Python calls an encoding; some programs begin UTF-8 with a byte order mark."""
    return "utf-8-sig" if encoding == "utf-8" else encoding


def separator_of(
    path: Path, names: Collection[str], given: Separator = "auto", encoding: Encoding = "utf-8"
) -> str:  # fmt: skip
    """What stands between the values of a file, by its header line: that which finds most of the declared columns.

    Args:
        names: of columns that the file is to have; none: they are not declared.
        given: what its owner says of it.

    Raises:
        HanseError: INVALID_INPUT for a header line that may be read in more than one way.
        UnicodeError: where the file is of another encoding.
    """
    if given != "auto":
        return given
    with path.open(encoding=codec_of(encoding), newline="") as file:
        header = file.readline(_LONGEST_HEADER).rstrip("\r\n")
    there = [mark for mark in _SEPARATORS if mark in header]
    if len(there) < 2:
        return there[0] if there else ","
    found = {mark: len(set(next(csv.reader([header], delimiter=mark))) & set(names)) for mark in there}
    best = [mark for mark in there if found[mark] == max(found.values())]
    if len(best) == 1:
        return best[0]
    raise unfit(
        f"data file {path.name}: the header line has {' and '.join(_SEPARATORS[mark] for mark in best)}: it is not "
        "clear which of them separate the columns", header, code=ErrorCode.INVALID_INPUT,
        hint="say separator in the site's table options, or write the file anew",
    )  # fmt: skip


def decimal_of(texts: Iterable[str], name: str) -> str:
    """Whether numbers have a decimal point or a decimal comma.

    Args:
        texts: cells of columns of numbers which are not plain numbers with a point.
        name: of the file.

    Raises:
        HanseError: INVALID_INPUT where all commas stand before three digits, as those between thousands do.
    """
    unclear = False
    for text in texts:
        if not _WITH_COMMA.fullmatch(text):
            continue
        if not _BY_THOUSANDS.fullmatch(text):
            return ","
        unclear = True
    if unclear:
        raise unfit(
            f"data file {name}: every comma in a number stands before three digits: it is not clear whether they are "
            "decimal commas", code=ErrorCode.INVALID_INPUT,
            hint="say decimal in the site's table options: ',' or '.'; thousands are written without a mark",
        )  # fmt: skip
    return "."


def with_point(text: str) -> str:
    """A number with a decimal comma as Python reads it. One with a point is none, for it may mark thousands."""
    return f"{text} (with a point)" if "." in text else text.replace(",", ".")
