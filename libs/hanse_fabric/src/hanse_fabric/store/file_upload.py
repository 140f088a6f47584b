"""A file's way to the store by links, in parts, which survives breaks. The hub's part is `uploads`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import Message
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.uploads import PARTS_AT_ONCE, PartLink, UploadState, UploadStep
from hanse_fabric.names import Digest
from hanse_fabric.store.transfer import Transfer
from hanse_fabric.strict_json import LARGE
from hanse_fabric.tensors.digest import LEAF_BYTES

_AT_ONCE = 3


class UploadNotes(Message):
    """How far an upload of one object came, on the disk of who sends it: for the process after this one."""

    schema_id: ClassVar[str] = "hanse.upload_notes/1"
    limits = LARGE

    digest: Digest
    step: UploadStep


class FileUpload:
    """A file on its way: what the store has of it is not sent again after a break.

    Args:
        notes: where it is written down how far the upload came, so that another process goes on with it; None: nowhere.
    """

    def __init__(self, transfer: Transfer, path: Path, ref: ObjectRef, *, notes: Path | None = None) -> None:
        self._transfer, self._path, self._ref, self._notes = transfer, path, ref, notes
        self._digests = ref.leaves or (ref.digest,)
        self._upload = ""
        self._etags: dict[int, str] = {}  # in the parts' order, none left out
        self._recall()

    @property
    def sent(self) -> int:
        """Parts that the store has, from the first on."""
        return len(self._etags)

    async def run(self, ask: Callable[[UploadStep], Awaitable[UploadState]]) -> str:
        """Send what is not there; returns the object's key.

        Args:
            ask: brings a step to the hub.

        Raises:
            HanseError: of `ask`, or of a part; after one that passes, call again.
        """
        while True:
            etags = tuple(self._etags.values())
            wanted = self._digests[len(etags) : len(etags) + PARTS_AT_ONCE]
            try:
                state = await ask(UploadStep(upload=self._upload, etags=etags, digests=wanted))
            except HanseError as error:
                if not self._recalled or error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                    raise
                self._begin_anew()  # what another process has begun is not to be ended
                continue
            if state.stored:
                if self._notes is not None:
                    self._notes.unlink(missing_ok=True)
                return state.key
            self._upload = state.upload
            try:
                await asyncio.to_thread(self._send, state)
            except HanseError as error:
                if error.code is ErrorCode.NOT_FOUND:
                    self._begin_anew()  # the hub has given it up
                elif error.code is not ErrorCode.GONE:
                    raise
                raise HanseError(ErrorCode.UNAVAILABLE, error.message, hint=error.hint) from None

    def _send(self, state: UploadState) -> None:
        def send(part: PartLink) -> str:
            start = (part.number - 1) * LEAF_BYTES
            return self._transfer.send_part(self._path, part, start, min(LEAF_BYTES, self._ref.size - start))

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="put-part") as threads:
            for part, etag in zip(state.parts, threads.map(send, state.parts), strict=True):
                self._etags[part.number] = etag
                self._note()

    def _begin_anew(self) -> None:
        self._upload, self._etags, self._recalled = "", {}, False

    def _note(self) -> None:
        """Not flushed to the disk: what a power failure takes is sent again."""
        if self._notes is not None and len(self._digests) > 1:
            step = UploadStep(upload=self._upload, etags=tuple(self._etags.values()))
            partial = self._notes.with_name(f"{self._notes.name}.new")
            with suppress(OSError):  # it is for speed alone
                partial.write_bytes(UploadNotes(digest=self._ref.digest, step=step).encode())
                partial.replace(self._notes)

    def _recall(self) -> None:
        self._recalled = False
        if self._notes is None:
            return
        with suppress(OSError, HanseError):
            known = UploadNotes.decode(self._notes.read_bytes())
            if known.digest == self._ref.digest and len(known.step.etags) <= len(self._digests):
                self._upload, self._etags = known.step.upload, dict(enumerate(known.step.etags, 1))
                self._recalled = True
