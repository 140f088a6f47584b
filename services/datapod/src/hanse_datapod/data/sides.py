"""By what a site sets test data aside itself, under a job that hides an example, or whoever has several.

Each unit has a number that follows from the unit alone: a keyed hash of its name, where the schema says whose an
example is, else of all that is known of the example. Units with small numbers are tested. So with one unit more or
fewer, no other one changes sides, whatever the order of the file, and `dp_sgd` hides whether it is there. Examples that
are equal are on one side. The key is no secret: it parts all sites' data alike, so whoever is at two of
them is on the same side at both.

Numbers are kept, names are not: nothing of this leaves the worker.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.names import said
from hanse_datapod.data.settings import DataSettings
from hanse_fabric.errors import ErrorCode, unfit
from hanse_learning.preparation.cells import Cells, blocks
from hanse_learning.site.examples import Examples
from hanse_learning.site.mapped import rows_at_once, will_need
from hanse_schemas.schema import LearnableSchema, unit_of

Draw = Callable[[Iterable[object]], NDArray[np.uint64]]
"""Gives names (n,) their numbers, the same for the same name."""
_ROWS = 1 << 14
_BYTES = 8


def draw_of(settings: DataSettings, schema: LearnableSchema) -> Draw | None:
    """What numbers the names of the units; None where they are not needed."""
    named = settings.keyed and unit_of(schema) is not None
    return partial(of_names, seed=settings.split_seed) if named else None


def drawn(examples: Examples, names: Sequence[str], draw: Draw | None) -> Examples:
    """Examples with the numbers by which they are set aside; `names` are by the numbers of `Examples.whose`."""
    if draw is None or examples.whose is None:
        return examples
    return replace(examples, draws=draw(names)[examples.whose])


def of_names(names: Iterable[object], *, seed: int) -> NDArray[np.uint64]:
    """The numbers (n,) of names, as they stand or as `said`: texts, or numbers."""
    keyed, known = _keyed(seed, b"unit"), dict[object, int]()
    given = names.tolist() if isinstance(names, np.ndarray) else list(names)
    for name in given:
        if name not in known:
            known[name] = _number(keyed, said(name).encode("utf-8", "surrogatepass"))
    return np.array([known[name] for name in given], np.uint64)


def of_examples(
    x: NDArray[np.float32], y: NDArray[Any], weights: NDArray[np.float64] | None, *, seed: int
) -> NDArray[np.uint64]:  # fmt: skip
    """The numbers (n,) of examples `x` (n, ...), `y` (n,), `weights` (n,), each by all that is known of it."""
    keyed, draws = _keyed(seed, b"row"), np.empty(len(x), np.uint64)
    for rows in _pieces(x):
        inputs = x[rows].reshape(rows.stop - rows.start, math.prod(x.shape[1:]))
        draws[rows] = [_number(keyed, row) for row in _as_bytes(inputs, y[rows], _some(weights, rows))]
    return draws


def of_cells(
    columns: Mapping[str, Cells], y: NDArray[Any], weights: NDArray[np.float64] | None, *, seed: int
) -> NDArray[np.uint64]:
    """The numbers (n,) of a table's rows: of numbers alone, the same as of examples that are made of them."""
    keyed, draws, start = _keyed(seed, b"row"), np.empty(len(y), np.uint64), 0
    for block in blocks(columns):
        texts = [cells.tolist() for cells in block.values() if cells.dtype.kind == "O"]
        numbers = [cells for cells in block.values() if cells.dtype.kind != "O"]
        count = len(next(iter(block.values()), y))
        for first in range(0, count, _ROWS):
            here = slice(first, min(first + _ROWS, count))
            rows = slice(start + here.start, start + here.stop)
            inputs = np.stack([_single(cells[here]) for cells in numbers], axis=1) if numbers else _none(here)
            told = _as_bytes(inputs, y[rows], _some(weights, rows))
            said = zip(*(cells[here] for cells in texts), strict=True) if texts else ((),) * (here.stop - here.start)
            draws[rows] = [
                _number(keyed, row + b"".join(map(_text, cells))) for row, cells in zip(told, said, strict=True)
            ]
        start += count
    return draws


def are_tested(draws: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Which of them are set aside for tests, of (n,): each with the probability `fraction`.

    Raises:
        HanseError: SCHEMA_MISMATCH where one side has none; which of them is for who has the data.
    """
    tested: NDArray[np.bool_] = draws < np.uint64(int(fraction * 2.0 ** (8 * _BYTES)))
    if tested.all() or not tested.any():
        raise unfit(
            "data: this site sets test data aside itself, each example, or whoever the schema's unit names, by a keyed "
            "hash of its own, and all fell on one side",
            f"{len(tested)} examples: {'tests' if tested.all() else 'training'}", code=ErrorCode.SCHEMA_MISMATCH,
            hint="few examples or units, or many equal rows, do this: give a file of test data (--test), or "
            "HANSE_TEST_FRACTION=0 for none",
        )  # fmt: skip
    return tested


def _keyed(seed: int, what: bytes) -> Any:
    key = str(seed).encode()[: hashlib.blake2b.MAX_KEY_SIZE]
    return hashlib.blake2b(digest_size=_BYTES, key=key, person=b"hanse side " + what)


def _number(keyed: Any, data: bytes) -> int:
    found = keyed.copy()
    found.update(data)
    return int.from_bytes(found.digest(), "little")


def _as_bytes(
    inputs: NDArray[Any], y: NDArray[Any], weights: NDArray[np.float64] | None
) -> Iterator[bytes]:  # fmt: skip
    """Each row (n, k) with its target and weight. Whether targets are whole numbers may depend on other rows."""
    parts = [_single(inputs), _single(y.astype(np.float64)).reshape(-1, 1)]
    if weights is not None:
        parts.append(_single(weights).reshape(-1, 1))
    return (row.tobytes() for row in np.concatenate(parts, axis=1))


def _single(cells: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as a model sees them; one zero, and one that is missing."""
    with np.errstate(over="ignore"):
        found = cells.astype(np.float32) + np.float32(0)
    found[np.isnan(found)] = np.nan
    return found


def _text(cell: str | None) -> bytes:
    """No two lists of cells are the same bytes."""
    if cell is None:
        return b"\0"
    told = cell.encode("utf-8", "surrogatepass")
    return b"\1" + len(told).to_bytes(8, "little") + told


def _none(rows: slice) -> NDArray[np.float32]:
    return np.empty((rows.stop - rows.start, 0), np.float32)


def _some(weights: NDArray[np.float64] | None, rows: slice) -> NDArray[np.float64] | None:
    return None if weights is None else weights[rows]


def _pieces(x: NDArray[Any]) -> Iterator[slice]:
    at_once = min(_ROWS, rows_at_once(x))
    for start in range(0, len(x), at_once):
        rows = slice(start, min(start + at_once, len(x)))
        will_need(x[rows])
        yield rows
