"""Examples that a trained model is to look at: from a table by the names of its columns, or from an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid

_SHOWN = 5


def examples_of(data: Any, shape: tuple[int, ...], columns: Sequence[str]) -> NDArray[np.float32]:
    """(n, *shape) float32, as sites have their examples.

    Args:
        data: a DataFrame or a mapping of columns where `columns` are given, in any order; or an array (n, *shape).
        columns: the features' names, in the model's order.

    Raises:
        HanseError: INVALID_INPUT naming the column or the example, and what was expected.
    """
    if columns and (hasattr(data, "columns") or isinstance(data, dict)):
        return _of_table(data, columns)
    try:
        given = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid("examples", type(data).__name__, "an array of numbers, or a table") from error
    if given.ndim != len(shape) + 1 or given.shape[1:] != tuple(shape):
        expected = f"an array of shape [n, {', '.join(map(str, shape))}]"
        raise invalid("examples", list(given.shape), expected + (", or a table" if columns else ""))
    flat = given.reshape(len(given), int(np.prod(shape)))
    if (bad := ~np.isfinite(flat)).any():
        row, at = (int(index) for index in np.argwhere(bad)[0])
        named = f"column {columns[at]}" if columns else f"value {at + 1}"
        raise _not_finite(named, row)
    return given.astype(np.float32)


def _of_table(data: Any, columns: Sequence[str]) -> NDArray[np.float32]:
    present = [str(name) for name in getattr(data, "columns", data)]
    if missing := [name for name in columns if name not in present]:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise invalid("examples", f"no column {', '.join(missing[:_SHOWN])}{more}", "a table with all of its features")
    made = np.empty((len(np.asarray(data[columns[0]])), len(columns)), np.float32)
    for at, name in enumerate(columns):
        try:
            values = np.asarray(data[name], dtype=np.float64)
        except (TypeError, ValueError):
            raise invalid(f"column {name}", "other than numbers", "finite numbers in every row") from None
        if values.shape != (len(made),):
            raise invalid(f"column {name}", list(values.shape), f"one number for each of {len(made)} rows")
        if (bad := ~np.isfinite(values)).any():
            raise _not_finite(f"column {name}", int(np.argmax(bad)))
        made[:, at] = values
    return made


def _not_finite(where: str, place: int) -> Exception:
    return HanseError(
        ErrorCode.INVALID_INPUT, f"examples: {where}, row {place + 1}: it is empty, or no finite number",
        hint="this model fills no cells, for it was trained without a preparation: give a finite number in every row",
    )  # fmt: skip
