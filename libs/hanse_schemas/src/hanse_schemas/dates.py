"""Days since 1970 of cells of dates: by the formats that the schema declares, or where it declares none, of ISO 8601,
day.month.year, and month/day/year or day/month/year, where a column shows which of these two it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S = 86_400.0
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?: (\d{1,2}:\d{2}(?::\d{2})?))?")
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})(?: (\d{1,2}:\d{2}(?::\d{2})?))?")


class Days:
    """Reads the cells of one column.

    Args:
        cells: all of them, for where slashes divide a date some cell must show where its day stands.
        formats: as `datetime.strptime` has them, in the order in which they are tried; none: see above.
    """

    def __init__(self, cells: Sequence[Any], formats: Sequence[str]) -> None:
        self._formats = formats
        # Month and day are at these places of a date with slashes; None: nothing shows it.
        self._month_day = None if formats else month_day(cells)

    def of(self, cell: Any) -> float:
        """Days since 1970.

        Raises:
            ValueError: where the cell is no date, or may be two.
        """
        if isinstance(cell, datetime):
            moment = cell
        elif isinstance(cell, date):
            moment = datetime(cell.year, cell.month, cell.day, tzinfo=UTC)
        else:
            moment = self._moment(str(cell).strip())
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH).total_seconds() / _DAY_S

    def _moment(self, text: str) -> datetime:
        for form in self._formats:
            try:
                return datetime.strptime(text, form)  # noqa: DTZ007 - without a zone, days are of UTC
            except ValueError:
                continue
        if self._formats:
            raise ValueError
        if found := _DAY_FIRST.fullmatch(text):
            day, month, year, time = found.groups()
        elif found := _SLASHES.fullmatch(text):
            if self._month_day is None:
                raise ValueError
            month, day = (found[place] for place in self._month_day)
            year, time = found[3], found[4]
        else:
            return datetime.fromisoformat(text)
        hour, minute, second, *_ = (int(part) for part in f"{time or '0:0'}:0".split(":"))
        return datetime(int(year), int(month), int(day), hour, minute, second, tzinfo=UTC)


def month_day(cells: Sequence[Any]) -> tuple[int, int] | None:
    """Where month and day stand in dates with slashes, as a day above 12 shows it; None: nothing does, or both."""
    shown = showing(cells)
    first, second = (place in shown for place in (1, 2))
    if first == second:
        return None
    return (1, 2) if second else (2, 1)


def showing(cells: Iterable[Any]) -> dict[int, str]:
    """Of dates with slashes, the first that has a number above 12 at the first place, and at the second."""
    found: dict[int, str] = {}
    for cell in cells:
        if isinstance(cell, str) and (parts := _SLASHES.fullmatch(cell.strip())):
            for place in (1, 2):
                if int(parts[place]) > 12:
                    found.setdefault(place, cell)
    return found
