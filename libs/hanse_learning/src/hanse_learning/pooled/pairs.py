"""How well a model of numbers ranks: Harrell's C, of all sites' examples together.

Of pairs of examples with different values, it is the share that the model ranks rightly, where pairs of which it says
the same count half (Harrell, Califf, Pryor, Lee, Rosati 1982). Two examples of different sites meet nowhere, so sites
count examples by cells: rows by value, columns by what the model says, between bounds of the project's schema. Pairs
of different rows and columns are ranked by their cells, exactly. For the others, of one row, of one column or of one
cell, each site ranks its own pairs exactly, and tells three sums of each kind. What is left are pairs of two sites in
one row, column or cell. They are taken to be ranked as the sites' own pairs of their kind are, which is near where
sites are much alike; how far off that can be is told, whatever they are.

Without a site's own pairs (coarse cells, or noise) only pairs of different rows are counted, half of those of one
column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_learning.pooled.layout import RANKED, STRATA, Counts
from hanse_learning.pooled.scores import Floats, Whole, Words


def shape_of(cells: int) -> tuple[int, int]:
    """(rows, columns) of so many cells, a power of two: as many of both, or twice as many columns, for what a model
    says varies less than what is true."""
    rows = 1 << (cells.bit_length() - 1) // 2
    return rows, cells // rows


def bin_of(values: Floats, bounds: tuple[float, ...], bins: int) -> Whole:
    """In which of so many bins values (n,) lie, of which as many are between any two neighbouring bounds; values beyond
    the ends are in the outermost."""
    u = np.interp(values, bounds, np.linspace(0.0, 1.0, len(bounds)))
    return np.asarray(np.minimum((u * bins).astype(np.int64), bins - 1))


def cells_of(true: Floats, said: Floats, bounds: tuple[float, ...], cells: int) -> Whole:
    """Examples (cells,) by value, then by what is said of them."""
    return np.bincount(_cell(true, said, bounds, cells), minlength=cells)


def _cell(true: Floats, said: Floats, bounds: tuple[float, ...], cells: int) -> Whole:
    rows, columns = shape_of(cells)
    return np.asarray(bin_of(true, bounds, rows) * columns + bin_of(said, bounds, columns))


def ranked(true: Floats, said: Floats, bounds: tuple[float, ...], cells: int) -> Whole:
    """A site's own pairs that cells do not rank: of one row (and different columns), of one column, of one cell; of
    each how many, how many of them have different values, and how many the model ranks rightly less those wrongly:
    (9,)."""
    columns = shape_of(cells)[1]
    cell = _cell(true, said, bounds, cells)
    row, column, one = (_within(group, true, said) for group in (cell // columns, cell % columns, cell))
    return np.concatenate([row - one, column - one, one])


def _within(group: Whole, true: Floats, said: Floats) -> Whole:
    """(3,) of all pairs within each group: pairs, of different values, ranked rightly less ranked wrongly."""
    by_said = _dense(group, said)  # ascends with the group first, so that no pair of two groups is out of order
    order = np.lexsort((by_said, _dense(group, true)))
    different = _pairs(group) - _pairs(_dense(group, true))
    tied = _pairs(by_said) - _pairs(_dense(by_said, true))  # by the model, and not in truth
    wrong = inversions(by_said[order])
    return np.array([_pairs(group), different, different - tied - 2 * wrong], np.int64)


def _dense(group: Whole, values: Floats) -> Whole:
    """Ranks (n,) by group, then by value; equal ones have one rank."""
    order = np.lexsort((values, group))
    new = (np.diff(group[order]) != 0) | (np.diff(values[order]) != 0)
    ranks = np.zeros(len(group), np.int64)
    ranks[order] = np.concatenate([np.zeros(1, np.int64), np.cumsum(new)])
    return ranks


def _pairs(group: Whole) -> int:
    sizes = np.bincount(group)
    return int((sizes * (sizes - 1) // 2).sum())


def inversions(ranks: Whole) -> int:
    """Pairs of which the first is the greater, of ranks (n,) from 0.

    By bits from the highest on: pairs that first differ in it are out of order where 1 is before 0. After each the
    numbers are put in order by what has been read of them, so that those of the same higher bits stay together.
    """
    found, now, at = 0, ranks, np.arange(len(ranks))
    for bit in range(int(ranks.max(initial=0)).bit_length() - 1, -1, -1):
        above, one = now >> (bit + 1), now >> bit & 1
        first = np.flatnonzero(np.concatenate([[True], above[1:] != above[:-1]]))  # of those with the same higher bits
        many = np.diff(np.append(first, len(now)))
        ones = np.cumsum(one) - one
        before = ones - np.repeat(ones[first], many)  # ones of the same higher bits
        found += int(before[one == 0].sum())
        zeros = at - np.repeat(first, many) - before
        all_zeros = many - np.add.reduceat(one, first)
        moved = np.empty_like(now)
        moved[np.repeat(first, many) + np.where(one == 1, np.repeat(all_zeros, many) + before, zeros)] = now
        now = moved
    return found


@dataclass(frozen=True, slots=True)
class Concordance:
    """What a sum says: the share of pairs that are ranked rightly, and between which bounds it is for certain."""

    value: float
    least: float
    most: float


def concordance(counts: Counts, words: Words) -> Concordance | None:
    """Of the words of the family; None where no pair is known to have different values."""
    cells = words[: counts.bins].astype(np.int64).reshape(shape_of(counts.bins))
    open_ = _open_pairs(cells)
    known = np.zeros((STRATA, RANKED), np.int64)
    if counts.ranks:
        known = words[counts.bins :].view(np.int64).reshape(STRATA, RANKED)
    examples = int(cells.sum())
    sure = examples * (examples - 1) // 2 - int(open_.sum())
    net = _ranked_by_cells(cells)
    pairs, right = float(sure), float(net)
    for at, (own, different, rightly) in enumerate(known.tolist()):
        left = int(open_[at]) - own
        pairs += different
        right += rightly
        sure, net = sure + different, net + rightly
        if own:
            pairs += left * different / own
            right += left * rightly / own
        elif at == _OF_ONE_COLUMN:  # they are of different rows, and so of different values
            pairs += left
    if pairs <= 0:
        return None
    others = int(open_.sum() - known[:, 0].sum())
    most = sure + others
    value, least = (1 + right / pairs) / 2, (1 + (net - others) / most) / 2
    return Concordance(min(1.0, max(0.0, value)), least, (1 + (net + others) / most) / 2)


_OF_ONE_COLUMN = 1


def _open_pairs(cells: Whole) -> Whole:
    """Pairs (3,) that the cells do not rank: of one row, of one column, of one cell."""
    row, column, one = (
        int((sizes * (sizes - 1) // 2).sum()) for sizes in (cells.sum(axis=1), cells.sum(axis=0), cells)
    )
    return np.array([row - one, column - one, one], np.int64)


def _ranked_by_cells(cells: Whole) -> int:
    """Pairs of different rows and columns: those in one order less those in the other."""
    below = np.cumsum(cells, axis=0) - cells  # in lower rows, by column
    left = np.cumsum(below, axis=1) - below
    right = below.sum(axis=1, keepdims=True) - left - below
    return int((cells * (left - right)).sum())


def can_be(counts: Counts, words: Words, examples: int) -> bool:
    """Whether these can be the words of so many examples."""
    cells = words[: counts.bins].astype(object)
    if int(cells.sum()) != examples:
        return False
    if not counts.ranks:
        return True
    open_ = _open_pairs(cells.astype(np.int64).reshape(shape_of(counts.bins)))
    known: NDArray[np.int64] = words[counts.bins :].view(np.int64).reshape(STRATA, RANKED)
    return all(
        0 <= different <= own <= most and -different <= rightly <= different
        for most, (own, different, rightly) in zip(open_.tolist(), known.tolist(), strict=True)
    )
