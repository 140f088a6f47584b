"""The outbox log as people read it: page by page, the newest first, and searched. What is shown was verified."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hanse_datapod.home.outbox import NAME
from hanse_fabric.chain import ChainReader, Entry, LogCheck, entry_of
from hanse_fabric.errors import ErrorCode, HanseError

MOST, LOOKED_AT = 200, 50_000
"""Entries of a page; lines that are looked through for one."""
_SEARCHED = ("what", "to", "digest", "task", "shape", "time")
_HIDDEN = ("previous", "hash")


@dataclass(frozen=True, slots=True)
class DeparturePage:
    """Some entries of the log, the newest first.

    Attributes:
        before: the next page has the entries before this number; None: there are none.
        looked_through: whether that is because so many lines were searched, and not because the page is full.
    """

    entries: tuple[Entry, ...]
    before: int | None
    looked_through: bool = False


class Departures:
    """The outbox log of a home, which its datapod goes on writing. Its methods block; any thread may call them."""

    def __init__(self, home: Path) -> None:
        self._reader = ChainReader(home, NAME)
        self._turn = threading.Lock()

    def verified(self) -> LogCheck:
        """Check what has come since the last time.

        Raises:
            HanseError: NOT_FOUND where there is no log yet.
        """
        with self._turn:
            return self._reader.catch_up()

    def page(
        self, *, before: int | None = None, most: int = 50, search: str = "", without: Collection[str] = ()
    ) -> DeparturePage:
        """Entries of which a text is a part, in any letters.

        Args:
            before: from the entry before this number on.
            most: entries, at most MOST.
            without: kinds of entries (`Leaving.what`) that are left out.

        Raises:
            HanseError: TAMPERED where the log is not as it was written; NOT_FOUND where there is none yet.
        """
        found: list[Entry] = []
        wanted, most = search.strip().casefold(), min(most, MOST)
        # As JSON has it; what is not ASCII is written in escapes, whose letters stay as they are.
        part = json.dumps(wanted)[1:-1].encode() if wanted.isascii() else b""
        number = None
        with self._turn:
            _require(self._reader.catch_up())
            last = len(self._reader) if before is None else min(before - 1, len(self._reader))
            for at, line in enumerate(self._reader.newest_first(before)):
                number = last - at
                if len(found) == most or at == LOOKED_AT:
                    return DeparturePage(tuple(found), number + 1, looked_through=len(found) < most)
                if part and part not in line.lower():
                    continue
                entry = entry_of(line)
                if entry["what"] not in without and _has(entry, wanted):
                    found.append({name: value for name, value in entry.items() if name not in _HIDDEN})
        return DeparturePage(tuple(found), None)


def _require(found: LogCheck) -> None:
    if found.broken is not None:
        raise HanseError(
            ErrorCode.TAMPERED, f"{NAME} log: entry {found.broken} is broken: {found.reason}", hint="see: verify-log"
        )


def _has(entry: Entry, wanted: str) -> bool:
    return not wanted or any(wanted in str(entry.get(name) or "").casefold() for name in _SEARCHED)
