"""The SNPs that all cohorts have, by chromosome, position and name. Numbers decide; words where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Array, Arrays
from hanse_genomics.files import text

Rows = NDArray[np.int64]
_POSITION_BITS = 40


def intersection(tables: Sequence[Arrays]) -> tuple[list[Rows], list[str]]:
    """Where the common SNPs lie in each cohort's table.

    Args:
        tables: by cohort chromosome, position and name; none has a SNP twice.

    Returns:
        by cohort int64 (S,): rows in genome order (chromosome, position, name); the names, (S,).
    """
    keys = [(t["chromosome"].astype(np.int64) << _POSITION_BITS) + t["position"] for t in tables]
    words = _words([t["name"] for t in tables])
    crowded = reduce(np.union1d, (_repeated(key) for key in keys))
    alone, apart = _by_place(keys, words, crowded), _by_name(keys, words, crowded)
    rows = [np.concatenate(both) for both in zip(alone, apart, strict=True)]
    # Those of one place are in the order of their names already, and a stable sort leaves them so.
    order = np.argsort(keys[0][rows[0]], kind="stable")
    rows = [own[order] for own in rows]
    return rows, [words[0][row] for row in rows[0].tolist()]


def _words(packed: Sequence[Array]) -> list[list[str]]:
    """The names of each cohort; those of cohorts with the same list are one list."""
    first = text.unpack(packed[0])
    return [first, *(first if np.array_equal(own, packed[0]) else text.unpack(own) for own in packed[1:])]


def _repeated(key: Rows) -> Rows:
    """Places where a cohort has several SNPs."""
    ordered = key if bool((key[1:] >= key[:-1]).all()) else np.sort(key)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _by_place(keys: Sequence[Rows], words: Sequence[list[str]], crowded: Rows) -> list[Rows]:
    """Rows of SNPs that are alone at their place in every cohort, and have one name in all."""
    rows = [np.flatnonzero(~np.isin(key, crowded)) if len(crowded) else np.arange(len(key)) for key in keys]
    common = keys[0][rows[0]]
    for key, own in zip(keys[1:], rows[1:], strict=True):
        if not np.array_equal(common, key[own]):
            common = np.intersect1d(common, key[own], assume_unique=True)
    rows = [_find(key, own, common) for key, own in zip(keys, rows, strict=True)]
    names = [[listed[row] for row in own.tolist()] for listed, own in zip(words, rows, strict=True)]
    if all(own == names[0] for own in names[1:]):
        return rows
    same = np.array([len(set(each)) == 1 for each in zip(*names, strict=True)], dtype=bool)
    return [own[same] for own in rows]


def _find(key: Rows, rows: Rows, wanted: Rows) -> Rows:
    there = key[rows]
    if np.array_equal(there, wanted):
        return rows
    order = np.argsort(there, kind="stable")
    return rows[order[np.searchsorted(there[order], wanted)]]


def _by_name(keys: Sequence[Rows], words: Sequence[list[str]], crowded: Rows) -> list[Rows]:
    """Rows of the others: where positions are not known, that is all of them."""
    found = []
    for key, listed in zip(keys, words, strict=True):
        rows = np.flatnonzero(np.isin(key, crowded)).tolist()
        found.append({(place, listed[row]): row for place, row in zip(key[rows].tolist(), rows, strict=True)})
    common = sorted(set(found[0]).intersection(*found[1:]))
    return [np.array([own[each] for each in common], dtype=np.int64) for own in found]
