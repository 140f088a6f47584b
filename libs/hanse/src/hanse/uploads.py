"""Giving the hub a model to start from: the owner's arrays or file, named by its digest."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

    from hanse_fabric.store.uploads import FileUpload

    ModelSource = str | Path | Mapping[str, np.ndarray]


def ask_upload(project: str, model: ObjectRef, step: UploadStep) -> Call[UploadState]:
    """The next step of a model's upload."""
    body = write(Announced, digest=model.digest, size=model.size, step=step)
    return Call("POST", path_of(project, "objects"), lambda answer: read(UploadState, answer), body)


@contextmanager
def model_file(model: ModelSource) -> Iterator[tuple[Path, ObjectRef]]:
    """The model as a tensor file, and what names it, while inside.

    Args:
        model: arrays by entry name, all parameters; or the path of a tensor file, such as a downloaded version.

    Raises:
        HanseError: NOT_FOUND, or INVALID_INPUT when it is no tensor file, is empty, or holds a number that is not
            finite.
    """
    from hanse_fabric.tensors.digest import Digester
    from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors

    with tempfile.TemporaryDirectory(prefix="hanse-upload-") as folder:
        if isinstance(model, Mapping):
            arrays, layout = dict(model), layout_like(model)
        else:
            layout, arrays = read_tensors(Path(model))
        _check_numbers(arrays)
        # Written anew even from a file: another writer's header need not be ours to the byte.
        path = Path(folder) / "model.safetensors"
        digester = Digester()
        write_tensors(path, layout, arrays, digester=digester)
        digest, leaves = digester.result()
        yield path, ObjectRef(digest=digest, size=path.stat().st_size, leaves=leaves)


@contextmanager
def file_upload(path: Path, model: ObjectRef, ca: Path | None) -> Iterator[FileUpload]:
    """The file's way to the store, while inside."""
    from hanse_fabric.store.transfer import HttpTransfer
    from hanse_fabric.store.uploads import FileUpload

    transfer = HttpTransfer(ca=ca)
    try:
        yield FileUpload(transfer, path, model)
    finally:
        transfer.close()


def _check_numbers(arrays: Mapping[str, np.ndarray]) -> None:
    import numpy

    if not arrays:
        raise HanseError(ErrorCode.INVALID_INPUT, "model: it has no entries")
    for name, array in arrays.items():
        if not numpy.isfinite(array).all():
            raise HanseError(ErrorCode.INVALID_INPUT, f"model entry {name}: not all its numbers are finite")
