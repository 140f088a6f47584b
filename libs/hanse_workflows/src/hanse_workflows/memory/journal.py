"""What a run in memory has done, for a second pass where the first was interrupted, and the objects that it refers to:
small ones are inside references, large ones lie in a folder until the run ends."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, UpdateInput
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_workflows.verbs import Body

_LARGEST = 1 << 40


class MemoryObjects:
    """Bytes by reference.

    Args:
        store: for what the reduction engine makes that is too large to be inline.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._bytes: dict[str, bytes] = {}

    def add(self, data: bytes) -> ObjectRef:
        """Keep what a site has sent; a reference without a place, as it has on the bus."""
        ref = ref_of_bytes(data)
        self._bytes[ref.digest] = data
        return ref

    def read(self, ref: ObjectRef) -> bytes:
        """The bytes behind a reference; NOT_FOUND where they were forgotten."""
        if ref.inline is not None:
            return ref.inline
        if ref.key is not None:
            return self.store.get(ref.key, limit=_LARGEST)
        if ref.digest not in self._bytes:
            raise HanseError(ErrorCode.NOT_FOUND, f"object {ref.digest[:12]} is not there any more")
        return self._bytes[ref.digest]

    def sent(self, updates: Iterable[UpdateInput]) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
        """For a job: updates by participant, and tallies by digest, that lie neither in the reference nor the store."""
        fetched, tallies = dict[str, bytes](), dict[str, bytes]()
        for update in updates:
            if update.ref.digest in self._bytes:
                fetched[update.participant] = tallies[update.ref.digest] = self._bytes[update.ref.digest]
            if update.tally is not None:
                tallies[update.tally.digest] = self._bytes[update.tally.digest]
        return fetched, tallies

    def forget(self, refs: Iterable[ObjectRef]) -> None:
        """Remove objects."""
        for ref in refs:
            self._bytes.pop(ref.digest, None)
            if ref.key is not None:
                self.store.delete(ref.key)


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
