"""Giving the hub a model to start from: the owner's arrays or file, named by its digest.

How far an upload came is written down in the user's cache. Who uploads the same model after a break goes on behind what
the store has, also in another process.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hanse.calls import Call, path_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.uploads import UploadState, UploadStep
from hanse_schemas.http.models import Announced
from hanse_schemas.http.reading import read, write

if TYPE_CHECKING:
    import numpy as np

    from hanse.arrays import Model
    from hanse_fabric.store.file_upload import FileUpload

    ModelSource = str | Path | Model


_FORGOTTEN_S = 7 * 86_400.0
"""After which nobody goes on with an upload: the hub has given it up long before."""


def ask_upload(project: str, model: ObjectRef, step: UploadStep) -> Call[UploadState]:
    """The next step of a model's upload."""
    body = write(Announced, digest=model.digest, size=model.size, step=step)
    return Call("POST", path_of(project, "objects"), lambda answer: read(UploadState, answer), body)


@contextmanager
def model_file(model: ModelSource) -> Iterator[tuple[Path, ObjectRef]]:
    """The model as a tensor file, and what names it, while inside.

    Args:
        model: arrays by entry name, or nested (`hanse.arrays`), floats as parameters; or the path of a tensor
            file, such as a downloaded version.

    Raises:
        HanseError: NOT_FOUND, or INVALID_INPUT when it is no tensor file, is empty, or holds a number that is not
            finite.
    """
    from hanse_fabric.tensors.digest import Digester
    from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors

    with tempfile.TemporaryDirectory(prefix="hanse-upload-") as folder:
        if isinstance(model, str | Path):
            layout, arrays = read_tensors(Path(model))
        else:
            from hanse.arrays import by_name

            arrays = by_name(model)
            layout = layout_like(arrays)
        _check_numbers(arrays)
        # Written anew even from a file: another writer's header need not be ours to the byte.
        path = Path(folder) / "model.safetensors"
        digester = Digester()
        write_tensors(path, layout, arrays, digester=digester)
        digest, leaves = digester.result()
        yield path, ObjectRef(digest=digest, size=path.stat().st_size, leaves=leaves)


@contextmanager
def file_upload(path: Path, model: ObjectRef, ca: Path | None, *, to: str) -> Iterator[FileUpload]:
    """The file's way to the store, while inside.

    Args:
        to: names the hub and the project.
    """
    from hanse_fabric.store.file_upload import FileUpload
    from hanse_fabric.store.transfer import HttpTransfer

    transfer = HttpTransfer(ca=ca)
    try:
        yield FileUpload(transfer, path, model, notes=_notes(to, model.digest))
    finally:
        transfer.close()


async def send(upload: FileUpload, ask: Callable[[UploadStep], Awaitable[UploadState]]) -> None:
    """Send what the store has not; after a break again, as long as each attempt brings it further.

    Raises:
        HanseError: as `FileUpload.run`.
    """
    while True:
        before = upload.sent
        try:
            await upload.run(ask)
        except HanseError as error:
            if error.code is not ErrorCode.UNAVAILABLE or upload.sent <= before:
                raise
        else:
            return


def _notes(to: str, digest: str) -> Path | None:
    """Where it is written down how far an upload came; None where the user has no place for it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "hanse" / "uploads"
    with suppress(OSError, RuntimeError):
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in cache.iterdir():
            if old.stat().st_mtime < time.time() - _FORGOTTEN_S:
                old.unlink(missing_ok=True)
        return cache / hashlib.sha256(f"{to}\n{digest}".encode()).hexdigest()
    return None


def _check_numbers(arrays: Mapping[str, np.ndarray]) -> None:
    import numpy

    if not arrays:
        raise HanseError(ErrorCode.INVALID_INPUT, "model: it has no entries")
    for name, array in arrays.items():
        if not numpy.isfinite(array).all():
            raise HanseError(ErrorCode.INVALID_INPUT, f"model entry {name}: not all its numbers are finite")
