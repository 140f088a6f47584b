"""How many people two states of a site's data differ by, from 10 KB kept of each.

An invertible Bloom lookup table (Goodrich and Mitzenmacher 2011): each person is a number that is added to three cells;
of two tables' difference, cells with one number left are peeled until nothing is. Some 300 differences can be counted;
of more it is known that they are many. It never leaves the site.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any

_CELLS, _PLACES = 513, 3  # three tables of 171 cells
_PART = _CELLS // _PLACES
_CELL = struct.Struct("<qQQ")
_MOST = 2**64


def sketch(people: Iterable[bytes]) -> bytes:
    """The table of people, each given by all that is known of them; some may be alike."""
    seen: dict[int, int] = {}
    cells = [[0, 0, 0] for _ in range(_CELLS)]
    for person in people:
        number = _number(person)
        again = seen[number] = seen.get(number, 0) + 1
        _add(cells, number if again == 1 else _number(person + again.to_bytes(8, "little")), 1)
    return b"".join(_CELL.pack(*cell) for cell in cells)


def rows(*arrays: Any) -> Iterable[bytes]:
    """The people of arrays (n, ...), each by their entries of all."""
    for entries in zip(*arrays, strict=True):
        yield b"".join(entry.tobytes() for entry in entries)


def people_of(rows: Iterable[bytes], whose: Iterable[int] | None) -> Iterable[bytes]:
    """The people that rows are of, each by all that is known of them in all their rows.

    Args:
        whose: a number for each row; None: each row is a person.
    """
    if whose is None:
        yield from rows
        return
    found: dict[int, list[bytes]] = {}
    for person, row in zip(whose, rows, strict=True):
        found.setdefault(person, []).append(row)
    for known in found.values():
        yield b"".join(len(row).to_bytes(8, "little") + row for row in sorted(known))


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
    return struct.unpack("<4Q", hashlib.blake2b(number.to_bytes(8, "little"), digest_size=32).digest())


def _number(person: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(person, digest_size=8).digest(), "little")
