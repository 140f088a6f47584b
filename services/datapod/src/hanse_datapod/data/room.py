"""How much of a site's data may be in memory. Loads no numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

_SHARE, _AT_MOST = 4, 3


@dataclass(frozen=True, slots=True)
class Room:
    """Data that need more memory than this while they are read are read piece by piece into a file, which is mapped.

    Attributes:
        memory: bytes.
        folder: where such files are made. They have no name, and go with the process.
    """

    memory: int
    folder: Path

    @classmethod
    def within(cls, limit: int, folder: Path) -> Room:
        """A quarter of the memory that there is: the rest is for libraries, the model, and the work."""
        return cls(limit // _SHARE, folder)

    @property
    def at_most(self) -> Room:
        """Three quarters: where the disk has no room either, so that what fits into memory is read all the same."""
        return replace(self, memory=_AT_MOST * self.memory)
