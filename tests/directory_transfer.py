"""Transfers by the links of a store in a directory: what a site has in tests that need no object store."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.uploads import PartLink
from hanse_fabric.store.files import disk_error, whole_file
from hanse_fabric.store.http import Body
from hanse_fabric.store.links import LinkSigner, etag_of
from hanse_fabric.store.transfer import Came


class DirectoryTransfer:
    """Transfers by the links of the `DirectoryStore` in `root`, on the same machine."""

    def __init__(self, root: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._signer = LinkSigner.of(root, clock)

    def fetch(self, url: str, path: Path, *, limit: int, came: Came | None = None) -> None:
        source, _ = self._signer.open("GET", url)
        try:
            with source.open("rb") as file:
                if source.stat().st_size > limit:
                    raise HanseError(ErrorCode.TOO_LARGE, f"download of {path.name}: more than the {limit} bytes")
                with whole_file(path, sync=False) as target:
                    shutil.copyfileobj(file, target)
            if came is not None:
                came.bytes = path.stat().st_size
        except OSError as error:
            raise disk_error(source, error) from None

    def send_part(self, path: Path, part: PartLink, start: int, size: int) -> str:
        target, holding = self._signer.open("PUT", part.url)
        if not target.parent.is_dir():
            raise HanseError(ErrorCode.NOT_FOUND, f"upload of {path.name}: it was given up")
        content, found = Body.of_file(path, start, size), hashlib.sha256()
        try:
            with whole_file(target) as copy:
                for block in content.content():
                    found.update(block)
                    copy.write(block)
                if holding != f"{size}-{found.hexdigest()}":
                    raise HanseError(ErrorCode.FORBIDDEN, f"upload of {path.name}: not the bytes that the link is for")
        except OSError as error:
            raise disk_error(path, error) from None
        return etag_of(found.hexdigest())

    def close(self) -> None:
        """Nothing is held open."""
