"""Reads data that are larger than memory piece by piece into files, to the same bits and by the same checks as whole.

The fault that is told is the one that a look at the whole file would have found first: all pieces are looked at before.
What each row has beside its features (target, weight, whose it is) is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.check import Passed, Raw, checked_inputs, checked_rest
from hanse_datapod.data.room import Room
from hanse_fabric.errors import HanseError
from hanse_learning.site.examples import Examples
from hanse_learning.site.mapped import mapped, written
from hanse_schemas.schema import LearnableSchema

PIECE_BYTES = 32 << 20
"""Of memory that a piece needs while it is read, some."""
_NONE = np.empty((0, 0))


@dataclass(frozen=True, slots=True)
class Piece:
    """The next examples of a file: inputs (n, ...) and targets (n,) as read, whose they are by numbers that stand for
    the same in all pieces, and their weights. (One piece may tell whose all are.)"""

    x: NDArray[Any]
    y: NDArray[Any]
    whose: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None


Make = Callable[[Passed], Piece]
"""Makes a piece, counting the checks that it passes; raises what `checked` raises."""


class FirstFault:
    """Of the faults of a file's pieces, the one that comes first in the order of checks, and then of rows."""

    def __init__(self) -> None:
        self._found: tuple[int, HanseError] | None = None

    def __bool__(self) -> bool:
        return self._found is not None

    def note(self, passed: Passed, error: HanseError) -> None:
        """A fault of the next piece, after so many checks."""
        if self._found is None or passed.count < self._found[0]:
            self._found = passed.count, error

    @property
    def final(self) -> bool:
        """Whether none can come before it."""
        return self._found is not None and self._found[0] == 0

    def require_none(self) -> None:
        """Raise it, where there is one."""
        if self._found is not None:
            raise self._found[1]


def stored(
    where: str, unit: str, rows: int, pieces: Iterable[tuple[int, Make]], schema: LearnableSchema, room: Room,
    targets: Callable[[NDArray[Any]], NDArray[Any]],
) -> Examples:  # fmt: skip
    """The examples of a file, whose inputs are `mapped`.

    Args:
        where, unit: as of `Raw`.
        rows: of all pieces, some.
        pieces: each with the number of its rows.
        targets: makes the targets of all pieces of those of each, together.

    Raises:
        HanseError: as `checked`; NO_SPACE.
    """
    fault, taken = FirstFault(), 0
    x: NDArray[np.float32] | None = None
    rest = Rest(rows)
    for count, make in pieces:
        passed = Passed()
        try:
            piece = make(passed)
            small = checked_inputs(Raw(where, piece.x, piece.y, unit, before=taken), schema, passed)
        except HanseError as error:
            fault.note(passed, error)
            if fault.final:
                break
        else:
            if not fault:
                x = mapped((rows, *small.shape[1:]), np.float32, room.folder) if x is None else x
                x[taken : taken + count] = small
                written(x[taken : taken + count])
                rest.take(piece)
        taken += count
    fault.require_none()
    if x is None:
        raise ValueError(f"{where}: {rows} rows in no piece")
    return Examples(x, *rest.checked(where, unit, schema, targets))


class Rest:
    """What the rows of a file have beside their features. All its memory is taken at once: were some kept of each
    piece, the holes between would soon be too small for the next.

    Args:
        rows: of all pieces.
    """

    def __init__(self, rows: int) -> None:
        self._rows, self._taken = rows, 0
        self._arrays: dict[str, NDArray[Any]] = {}

    def take(self, piece: Piece) -> None:
        """Keep that of the next rows."""
        rows = slice(self._taken, self._taken + len(piece.y))
        for name, given in (("y", piece.y), ("whose", piece.whose), ("weights", piece.weights)):
            if given is None:
                continue
            if len(given) == self._rows:
                self._arrays[name] = given
            else:
                if name not in self._arrays:
                    self._arrays[name] = np.empty(self._rows, given.dtype)
                self._arrays[name][rows] = given
        self._taken = rows.stop

    def checked(
        self, where: str, unit: str, schema: LearnableSchema, targets: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> tuple[NDArray[Any], NDArray[np.int64] | None, NDArray[np.float64] | None]:
        """As `checked_rest`, with the targets that `targets` makes of those of all pieces.

        Raises:
            HanseError: as this.
        """
        of = self._arrays.get
        whole = Raw(where, _NONE, targets(self._arrays["y"]), unit, of("whose"), of("weights"))
        return checked_rest(whole, schema)
