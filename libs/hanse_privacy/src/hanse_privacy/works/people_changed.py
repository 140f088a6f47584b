"""How many people two states of a site's data differ by, from 12 KB kept of each (`people`), and of each part of it.

An invertible Bloom lookup table (Goodrich and Mitzenmacher 2011): each person is a number that is added to three cells;
of two tables' difference, cells with one number left are peeled until nothing is. Some 300 differences can be counted;
of more it is known that they are many. A site's agent, which has no numpy, compares; its worker makes the tables.
"""

from __future__ import annotations

import hashlib
import struct

CELLS, PLACES = 513, 3  # three tables of 171 cells
PART = CELLS // PLACES
CELL = struct.Struct("<qQQ")
"""How many numbers were added, their sum, and the sum of what they are checked by, modulo 2^64."""
_MOST = 2**64


def parts_of(sketched: bytes) -> list[bytes]:
    """What `people.sketches` has put together, or the one table that `sketch` has made."""
    size = CELLS * CELL.size
    return [sketched[at : at + size] for at in range(0, len(sketched), size)]


def changed(one: bytes, other: bytes) -> int | None:
    """How many people were added, or removed, whichever are more; someone who changed is both. None: hundreds.

    Args:
        one, other: of `people.sketch`.
    """
    cells = [
        [a - b, (c - d) % _MOST, (e - f) % _MOST]
        for (a, c, e), (b, d, f) in zip(CELL.iter_unpack(one), CELL.iter_unpack(other), strict=True)
    ]
    found = {1: 0, -1: 0}
    waiting = list(range(CELLS))
    while waiting:
        count, total, checks = cells[waiting.pop()]
        if count not in found:
            continue
        number = count * total % _MOST
        if count * checks % _MOST != _hashes(number)[PLACES]:
            continue
        found[count] += 1
        waiting += _add(cells, number, -count)
    return None if any(any(cell) for cell in cells) else max(found.values())


def _add(cells: list[list[int]], number: int, times: int) -> list[int]:
    *hashes, check = _hashes(number)
    places = [part * PART + place % PART for part, place in enumerate(hashes)]
    for place in places:
        count, total, checks = cells[place]
        cells[place] = [count + times, (total + times * number) % _MOST, (checks + times * check) % _MOST]
    return places


def _hashes(number: int) -> tuple[int, ...]:
    return struct.unpack("<4Q", hashed(number.to_bytes(8, "little")))


def hashed(number: bytes) -> bytes:
    """Of a person's 8 bytes: a number for each place, and one by which what was peeled is checked."""
    return hashlib.blake2b(number, digest_size=32).digest()
