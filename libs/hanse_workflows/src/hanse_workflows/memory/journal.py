"""What a run in memory has done: for a second pass, where the first was interrupted."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from hanse_fabric.store.directory import DirectoryStore
from hanse_workflows.memory.objects import MemoryObjects
from hanse_workflows.verbs import Body


class Journal:
    """Outcomes, and the objects that they refer to. Large ones lie in a folder, which goes with the journal.

    Attributes:
        outcomes: fingerprint and outcome by step's key.
    """

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="hanse-memory-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.outcomes: dict[str, tuple[str, Body]] = {}
        self.objects = MemoryObjects(DirectoryStore(Path(folder)))

    def close(self) -> None:
        """Remove the folder: nothing of the run is asked for again."""
        self._remove()
