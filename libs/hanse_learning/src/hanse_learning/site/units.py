"""Units of privacy: whoever has examples (a patient, a device), or each example for itself.

A unit is sampled with all its examples, and its gradient is the mean of theirs, which is clipped as one: so whatever a
unit's examples are, and how many, it moves a step's sum by no more than the clip (McMahan et al., 2018, for people).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hanse_learning.site.examples import Examples
from hanse_privacy.noise.source import NoiseSource

Rows = NDArray[np.int64]


class Units:
    """The units of a site's examples.

    Args:
        largest: examples of one unit that a step uses: of one that has more, so many at random.
    """

    def __init__(self, data: Examples, largest: int) -> None:
        whose = np.arange(len(data)) if data.whose is None else data.whose
        self._rows = np.argsort(whose, kind="stable")
        self._sizes = np.unique(whose, return_counts=True)[1]
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._largest = largest

    def __len__(self) -> int:
        return len(self._sizes)

    def batches(self, chosen: Rows, most: int, source: NoiseSource) -> Iterator[tuple[Rows, int]]:
        """The examples of chosen units, those of equal size together.

        Args:
            chosen: indices of units.
            most: units in a batch.

        Yields:
            (k m,) indices of examples, those of a unit one after the other, and m, of each of k units.
        """
        sizes = np.minimum(self._sizes[chosen], self._largest)
        for size in (int(each) for each in np.unique(sizes)):
            alike = chosen[sizes == size]
            at_once = max(1, most // size)
            for start in range(0, len(alike), at_once):
                part = alike[start : start + at_once]
                yield self._rows[self._starts[part, None] + self._places(part, size, source)].reshape(-1), size

    def _places(self, units: Rows, size: int, source: NoiseSource) -> Rows:
        """Which of their examples are used: (k, size), or (1, size) where all are."""
        if size < self._largest:
            return np.arange(size)[None]
        return np.stack([np.argsort(source.words(count))[:size] for count in self._sizes[units]])
