"""How many people two states of a site's data differ by, from 12 KB kept of each, and of each part of it.

An invertible Bloom lookup table (Goodrich and Mitzenmacher 2011): each person is a number that is added to three cells;
of two tables' difference, cells with one number left are peeled until nothing is. Some 300 differences can be counted;
of more it is known that they are many. It never leaves the site.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

import numpy as np

_CELLS, _PLACES = 513, 3  # three tables of 171 cells
_PART = _CELLS // _PLACES
_CELL = struct.Struct("<qQQ")
_MOST = 2**64
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


def parts_of(sketched: bytes) -> list[bytes]:
    """What `sketches` has put together, or the one table that `sketch` has made."""
    size = _CELLS * _CELL.size
    return [sketched[at : at + size] for at in range(0, len(sketched), size)]


class _Cells:
    """A table that people are added to, many at once: one by one it takes twice as long."""

    def __init__(self) -> None:
        self._counts = np.zeros(_CELLS, np.int64)
        self._totals, self._checks = np.zeros(_CELLS, np.uint64), np.zeros(_CELLS, np.uint64)  # modulo 2^64
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
        return b"".join(map(_CELL.pack, self._counts.tolist(), self._totals.tolist(), self._checks.tolist()))

    def _add(self) -> None:
        numbers = np.frombuffer(b"".join(self._waiting), "<u8")
        hashes = np.frombuffer(b"".join(map(_hashed, self._waiting)), "<u8").reshape(-1, _PLACES + 1)
        for part in range(_PLACES):
            places = (part * _PART + hashes[:, part] % _PART).astype(np.intp)
            np.add.at(self._counts, places, 1)
            np.add.at(self._totals, places, numbers)
            np.add.at(self._checks, places, hashes[:, _PLACES])
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


def changed(one: bytes, other: bytes) -> int | None:
    """How many people were added, or removed, whichever are more; someone who changed is both. None: hundreds.

    Args:
        one, other: of `sketch`.
    """
    cells = [
        [a - b, (c - d) % _MOST, (e - f) % _MOST]
        for (a, c, e), (b, d, f) in zip(_CELL.iter_unpack(one), _CELL.iter_unpack(other), strict=True)
    ]
    found = {1: 0, -1: 0}
    waiting = list(range(_CELLS))
    while waiting:
        count, total, checks = cells[waiting.pop()]
        if count not in found:
            continue
        number = count * total % _MOST
        if count * checks % _MOST != _hashes(number)[_PLACES]:
            continue
        found[count] += 1
        waiting += _add(cells, number, -count)
    return None if any(any(cell) for cell in cells) else max(found.values())


def _add(cells: list[list[int]], number: int, times: int) -> list[int]:
    *hashes, check = _hashes(number)
    places = [part * _PART + place % _PART for part, place in enumerate(hashes)]
    for place in places:
        count, total, checks = cells[place]
        cells[place] = [count + times, (total + times * number) % _MOST, (checks + times * check) % _MOST]
    return places


def _hashes(number: int) -> tuple[int, ...]:
    return struct.unpack("<4Q", _hashed(number.to_bytes(8, "little")))


def _hashed(number: bytes) -> bytes:
    return hashlib.blake2b(number, digest_size=32).digest()


def _number(person: bytes) -> bytes:
    return hashlib.blake2b(person, digest_size=8).digest()
