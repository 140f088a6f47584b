"""The outputs of a job on their way to the store: parts, of which whole objects are composed."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import INLINE_LIMIT, JobKind, ObjectRef, Part, ReduceJob
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.tensors.digest import LEAF_BYTES, combine_leaves, leaf_count
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.server.config import check_strategy, state_names
from hanse_reduction.plan import MODEL

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Uploads:
    """Where a job writes. Methods block; threads may share it."""

    job: ReduceJob
    any_store: ObjectStore | None

    @property
    def store(self) -> ObjectStore:
        if self.any_store is None:
            raise HanseError(ErrorCode.UNAVAILABLE, "no object store is configured", hint="set HANSE_STORE_URL")
        return self.any_store

    def key(self, output: str) -> str:
        """The key of an output."""
        return f"{self.job.output_key}/{output}"

    def put(self, output: str, data: bytes | memoryview, *, inline: int = INLINE_LIMIT) -> ObjectRef:
        """Make an object of one leaf: inline up to `inline` bytes, else in the store."""
        if len(data) <= inline:
            return ref_of_bytes(bytes(data), inline=True)
        self.store.put(self.key(output), data)
        return ObjectRef(digest=hashlib.sha256(data).hexdigest(), size=len(data), key=self.key(output))

    def put_file(self, output: str, path: Path) -> ObjectRef:
        """Make an object of a file, leaf by leaf where it is large."""
        with path.open("rb") as file:
            return self.put_open(output, file)

    def put_open(self, output: str, file: BinaryIO) -> ObjectRef:
        """The same of an open file, from its beginning."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if leaf_count(size) == 1:
            return self.put(output, file.read())
        upload = self.store.open_upload(self.key(output))
        parts = [
            self.put_part(output, upload, index, memoryview(file.read(LEAF_BYTES))) for index in range(leaf_count(size))
        ]
        return self._close(output, upload, parts, size)

    def open(self, outputs: tuple[str, ...]) -> dict[str, str]:
        """Begin an upload for each output; their ids."""
        return {name: self.store.open_upload(self.key(name)) for name in outputs}

    def put_part(self, name: str, upload: str, index: int, leaf: memoryview) -> Part:
        """Store leaf `index` of an output."""
        digest = hashlib.sha256(leaf).hexdigest()
        try:
            etag = self.store.put_part(self.key(name), upload, index + 1, leaf)
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND or self.job.kind is not JobKind.WHOLE:
                raise
            # Another replica has done this job and swept our upload; the next attempt finds its answer.
            raise HanseError(ErrorCode.UNAVAILABLE, error.message) from None
        return Part(output=name, number=index + 1, etag=etag, digest=digest)

    def compose(self, parts: tuple[Part, ...], uploads: Mapping[str, str], size: int) -> dict[str, ObjectRef]:
        """Close the uploads; the objects' digests come from their parts'."""
        expected = {MODEL}
        if self.job.model is not None or self.job.from_zero:
            expected.update(state_names(check_strategy(self.job.strategy)))
        if set(uploads) != expected:
            raise invalid("uploads", sorted(uploads), f"one for each of {sorted(expected)}")
        outputs = {}
        for name in uploads:
            mine = sorted((part for part in parts if part.output == name), key=lambda part: part.number)
            if [part.number for part in mine] != list(range(1, leaf_count(size) + 1)):
                raise invalid(f"parts of {name}", [part.number for part in mine], f"1 to {leaf_count(size)}")
            outputs[name] = self._close(name, uploads[name], mine, size)
        self._sweep()
        return outputs

    def _close(self, name: str, upload: str, parts: list[Part], size: int) -> ObjectRef:
        self.store.close_upload(self.key(name), upload, [(part.number, part.etag) for part in parts])
        leaves = tuple(part.digest for part in parts)
        return ObjectRef(
            digest=combine_leaves(leaves), size=size, leaves=leaves if len(leaves) > 1 else (), key=self.key(name)
        )

    def abort(self, uploads: Mapping[str, str]) -> None:
        """Give uploads up. What could not be aborted is left to the store's own expiry of unfinished uploads."""
        with suppress(HanseError):
            for name, upload in uploads.items():
                self.store.abort_upload(self.key(name), upload)

    def forget(self, refs: tuple[ObjectRef, ...]) -> None:
        """Remove objects that only this reduction needed. Those that cannot be removed are small and stay."""
        with suppress(HanseError):
            for ref in refs:
                if ref.key is not None:
                    self.store.delete(ref.key)

    def _sweep(self) -> None:
        """Abort the uploads that earlier attempts at this job left when they were killed.

        This is done after the outputs are stored, not before: then two replicas with the same job cannot keep each
        other from finishing it.
        """
        with suppress(HanseError):
            if count := self.store.abort_uploads(f"{self.job.output_key}/"):
                log.info("run %s: %d unfinished uploads of step %s are aborted", self.job.run, count, self.job.step)
