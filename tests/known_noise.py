"""Sources of noise of which a test knows what they give."""

from __future__ import annotations

import numpy as np

from hanse_privacy.noise.source import NoiseSource, Words


def source(number: int = 0) -> NoiseSource:
    """The same words for the same number."""
    return NoiseSource(number.to_bytes(32, "little"))


class Told(NoiseSource):
    """A source of which the words are told."""

    def __init__(self, *words: int) -> None:
        super().__init__(bytes(32))
        self._told = list(words)

    def words(self, count: int) -> Words:
        taken, self._told = self._told[:count], self._told[count:]
        assert len(taken) == count
        return np.array(taken, dtype=np.uint64)
