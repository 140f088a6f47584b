"""Strategies on numpy arrays, by threads over ranges of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.server import buffers
from hanse_learning.server.reduction import Array, Measured, measured
from hanse_learning.server.strategy import Strategy

_Done = TypeVar("_Done")
TRAINED = (np.float16, np.float32, np.float64)
"""Types of parameters. Other floats (extended, of another byte order) would be computed in another precision."""


@dataclass(frozen=True, slots=True)
class NumpyArrays:
    """See `hanse_learning.in_memory.Backend`.

    Attributes:
        threads: at work at once.
        block: columns that are measured together, and the least that a thread takes.
    """

    threads: int
    block: int

    def kind(self, array: Array) -> str:
        if array.dtype in TRAINED:
            return "f"
        return "i" if array.dtype.kind in "iub" and array.dtype.isnative else ""

    def flat(self, array: Array) -> Array:
        return array.reshape(-1)

    def copy(self, array: Array) -> Array:
        return np.array(array, order="C")

    def filled(self, like: Array, value: float) -> Array:
        return np.full_like(like, value)

    def finite(self, array: Array) -> bool:
        # One pass and no array of the size: a sum is finite unless a number is not, or unless it overflows.
        if array.dtype.kind != "f":
            return True
        flat = self.flat(array)

        def look(part: slice) -> bool:
            with np.errstate(over="ignore", invalid="ignore"):
                return bool(np.isfinite(flat[part].sum())) or bool(np.isfinite(flat[part]).all())

        return all(self._each(flat.size, look))

    def measure(self, reduction: Measured, rows: Sequence[Array]) -> list[Mapping[str, Array]]:
        """What is measured, block by block."""
        return self._each(rows[0].size, lambda part: measured(reduction, [row[part] for row in rows]))

    def apply(
        self,
        strategy: Strategy,
        model: Array,
        rows: Sequence[Array],
        weights: Array,
        state: Mapping[str, Array],
        round_: int,
    ) -> None:
        """See `Strategy.apply`."""

        def work(part: slice) -> None:
            own = {name: array[part] for name, array in state.items()}
            with np.errstate(over="ignore", invalid="ignore"):
                strategy.apply(model[part], [row[part] for row in rows], weights, own, round_)

        self._each(model.size, work)

    def buffer(self, rule: str, values: Sequence[Array], means: Sequence[Array], weights: Array, out: Array) -> None:
        """See `hanse_learning.server.buffers`."""
        if rule == "average":
            buffers.average(values, weights, out)
        elif rule == "keep_newest":
            buffers.keep_newest(values, out)
        elif rule == "pool_variance":
            buffers.pool_variance(values, means, weights, out)
        else:
            raise invalid("buffers", rule, "average, keep_newest or pool_variance")

    def _each(self, size: int, work: Callable[[slice], _Done]) -> list[_Done]:
        """Do the work on each block, in threads where there are several; the outcomes in order."""
        parts: Iterable[slice] = [slice(at, min(at + self.block, size)) for at in range(0, size, self.block)]
        if self.threads < 2 or size <= self.block:
            return [work(part) for part in parts]
        with ThreadPoolExecutor(self.threads, "reduce") as pool:
            return list(pool.map(work, parts))
