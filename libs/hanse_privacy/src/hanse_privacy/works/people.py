"""What is kept of the people of a site's data: 12 KB, from which can be told by how many another state of it differs
(`people_changed`). It never leaves the site.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

import numpy as np

from hanse_privacy.works.people_changed import CELL, CELLS, PART, PLACES, hashed

_AT_ONCE = 4096
"""People that are added together."""


def sketch(people: Iterable[bytes]) -> bytes:
    """The table of people, each given by all that is known of them; some may be alike."""
    cells = _Cells()
    cells.fill(people)
    return cells.packed()


def sketches(parts: Iterable[Iterable[bytes]], *, keyed: bool = False) -> bytes:
    """The table of the people of all parts together, and behind it that of each part: work that is made of one part
    tells of a few who have gone from it, however many have gone from others.

    Args:
        parts: who is trained on first, then who is tested on.
        keyed: who is tested on was set aside by each one's own number. The same people may have been parted in another
            way before, and sums over either part differ by those who are on another side: so whoever is tested on is
            somebody else than in training, in the table of all.
    """
    whole, told = _Cells(), list[bytes]()
    for people in parts:
        if not told:  # of the first part, both are the same
            whole.fill(people)
            told.append(whole.packed())
            continue
        own = _Cells()
        also = own.filling(people)
        whole.fill((b"tested" + person for person in also) if keyed else also)
        told.append(own.packed())
    return b"".join([whole.packed(), *told])


class _Cells:
    """A table that people are added to, many at once: one by one it takes twice as long."""

    def __init__(self) -> None:
        self._counts = np.zeros(CELLS, np.int64)
        self._totals, self._checks = np.zeros(CELLS, np.uint64), np.zeros(CELLS, np.uint64)  # modulo 2^64
        self._seen = _Seen()
        self._waiting: list[bytes] = []  # numbers

    def fill(self, people: Iterable[bytes]) -> None:
        for _ in self.filling(people):
            pass

    def filling(self, people: Iterable[bytes]) -> Iterator[bytes]:
        """People, who are added on the way, and of whom some may have been seen."""
        for person in people:
            number = _number(person)
            again = self._seen.times(int.from_bytes(number, "little"))
            self._waiting.append(number if again == 1 else _number(person + again.to_bytes(8, "little")))
            if len(self._waiting) == _AT_ONCE:
                self._add()
            yield person

    def packed(self) -> bytes:
        self._add()
        return b"".join(map(CELL.pack, self._counts.tolist(), self._totals.tolist(), self._checks.tolist()))

    def _add(self) -> None:
        numbers = np.frombuffer(b"".join(self._waiting), "<u8")
        hashes = np.frombuffer(b"".join(map(hashed, self._waiting)), "<u8").reshape(-1, PLACES + 1)
        for part in range(PLACES):
            places = (part * PART + hashes[:, part] % PART).astype(np.intp)
            np.add.at(self._counts, places, 1)
            np.add.at(self._totals, places, numbers)
            np.add.at(self._checks, places, hashes[:, PLACES])
        self._waiting.clear()


class Known(Protocol):
    """What is known of each row, from the first to the last, or of one."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __getitem__(self, row: int) -> bytes: ...


def rows(*arrays: Any) -> Known:
    """The people of arrays (n, ...), each by their entries of all."""
    return _Rows(*arrays)


class _Rows:
    def __init__(self, *arrays: Any) -> None:
        self._arrays = arrays

    def __iter__(self) -> Iterator[bytes]:
        for entries in zip(*self._arrays, strict=True):
            yield b"".join(entry.tobytes() for entry in entries)

    def __getitem__(self, row: int) -> bytes:
        return b"".join(array[row].tobytes() for array in self._arrays)


def people_of(rows: Known, whose: Any) -> Iterable[bytes]:
    """The people that rows are of, each by all that is known of them in all their rows.

    Args:
        whose: array (n,) of a number for each row; None: each row is a person.
    """
    if whose is None:
        yield from rows
        return
    order = whose.argsort(kind="stable")
    ordered = whose[order]
    start = 0
    for end in chain((ordered[1:] != ordered[:-1]).nonzero()[0] + 1, [len(order)] if len(order) else []):
        # One person's rows at a time: those of all may be more than there is memory.
        yield b"".join(len(row).to_bytes(8, "little") + row for row in sorted(rows[at] for at in order[start:end]))
        start = end


class _Seen:
    """How often numbers came, in 12 to 24 bytes for each (a set of Python takes five times as many)."""

    def __init__(self) -> None:
        self._table = array("Q", bytes(8 << 10))
        self._used = 0
        self._again: dict[int, int] = {}

    def times(self, number: int) -> int:
        """1 for one that comes for the first time."""
        number = number or 1  # 0 marks a free place
        if self._put(number):
            if 3 * self._used > 2 * len(self._table):
                old, self._table, self._used = self._table, array("Q", bytes(16 * len(self._table))), 0
                for each in old:
                    if each:
                        self._put(each)
            return 1
        times = self._again[number] = self._again.get(number, 1) + 1
        return times

    def _put(self, number: int) -> bool:
        """Whether it was not there."""
        table, last = self._table, len(self._table) - 1
        place = number & last
        while found := table[place]:
            if found == number:
                return False
            place = place + 1 & last
        table[place] = number
        self._used += 1
        return True


def _number(person: bytes) -> bytes:
    return hashlib.blake2b(person, digest_size=8).digest()
