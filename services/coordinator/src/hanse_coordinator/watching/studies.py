"""Results of studies that people look at: fetched from the store and verified once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from hanse_coordinator.records import RunRecord
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef
from hanse_fabric.store.port import ObjectStore

if TYPE_CHECKING:
    from hanse_genomics.results.drawn import Drawn

_LARGEST = 256 << 20
"""Bytes of results that pages are drawn of: some three million SNPs."""
_LOOKERS = 4096


class Studies:
    """Results by digest, of so many studies as were looked at last."""

    def __init__(self, store: ObjectStore, *, studies: int = 2) -> None:
        self._store, self._most = store, studies
        self._held: OrderedDict[str, Drawn] = OrderedDict()
        self._reading = asyncio.Lock()
        self._lookers: OrderedDict[tuple[str, str], Studies | None] = OrderedDict()

    def is_first_look(self, actor: str, digest: str) -> bool:
        """Whether somebody has not looked at these results before, as far as is remembered: the audit has first looks,
        and not each page of a table."""
        first = self._lookers.pop((actor, digest), self) is self
        self._lookers[actor, digest] = None
        while len(self._lookers) > _LOOKERS:
            self._lookers.popitem(last=False)
        return first

    async def of(self, record: RunRecord) -> Drawn:
        """The results of a run.

        Raises:
            HanseError: NOT_FOUND where there are none yet; TOO_LARGE for more than pages can be drawn of.
        """
        results, summary = _ref(record, "results"), _ref(record, "summary")
        async with self._reading:  # one at a time: they are large
            if results.digest not in self._held:
                while len(self._held) >= self._most:
                    self._held.popitem(last=False)
                self._held[results.digest] = await asyncio.to_thread(self._read, results, summary)
            self._held.move_to_end(results.digest)
            return self._held[results.digest]

    def _read(self, results: ObjectRef, summary: ObjectRef) -> Drawn:
        # Here and not above: they bring NumPy, which the coordinator of a hub without studies never loads.
        from hanse_fabric.tensors.file import decode_tensors
        from hanse_genomics.results.drawn import Drawn
        from hanse_genomics.results.table import summary_of

        _, arrays = decode_tensors(self._fetched(results))
        _, packed = decode_tensors(self._fetched(summary))
        return Drawn(arrays, summary_of(packed))

    def _fetched(self, ref: ObjectRef) -> bytes:
        from hanse_fabric.tensors.refs import verify_bytes

        if ref.size > _LARGEST:
            raise HanseError(
                ErrorCode.TOO_LARGE, f"results: {ref.size} bytes, at most {_LARGEST} are drawn",
                hint="hanse gwas report draws them where you are",
            )  # fmt: skip
        data = self._store.get(ref.key or "", limit=_LARGEST)
        verify_bytes(ref, data)
        return data


def _ref(record: RunRecord, name: str) -> ObjectRef:
    body = record.outputs.get(name)
    ref = ObjectRef.model_validate(body) if body is not None else None
    if ref is None or ref.key is None:
        raise HanseError(
            ErrorCode.NOT_FOUND, f"run {record.run} has no {name}", hint="a study has results when it has completed"
        )
    return ref
