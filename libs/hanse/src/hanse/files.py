"""Files that the SDK reads and writes on the user's side."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse.trained import TrainedModel
    from hanse_schemas.http.models import Download
    from hanse_schemas.http.outputs import OutputLink


def record_path(model: Path) -> Path:
    """Where the signed record of a downloaded model lies."""
    return model.with_name(model.name + ".json")


def save_model(found: Download, path: Path, *, digest: str, ca: Path | None, patience: float) -> Path:
    """Download a model version, verify it, and only then store it, with its signed record beside it.

    Args:
        found: the record and a presigned link to the file.
        digest: of the version that was asked for.
        ca: of the object store, where it is a private one.
        patience: seconds for which a store that does not answer is tried again.

    Raises:
        HanseError: TAMPERED when file or record are not what the registry signed; TOO_LARGE; UNAVAILABLE; NO_SPACE.
    """
    from hanse.verification import verify_model

    record = found.version.record
    if record.digest != digest:
        raise HanseError(
            ErrorCode.TAMPERED, f"version {record.version}: the link is to {record.digest}, {digest} was asked for"
        )
    with _fetched(found.url, path, record.size, ca, patience) as unverified:
        verify_model(unverified, record, trusted_key=record.public_key)
        unverified.replace(path)
        record_path(path).write_bytes(record.canonical())
    return path


def load_model(found: Download, *, digest: str, ca: Path | None, patience: float) -> TrainedModel:
    """Download a model version, verify it, and build the model of it. Nothing stays on disk.

    Args:
        found, digest, ca, patience: as for `save_model`.

    Raises:
        HanseError: as `save_model`; UNAVAILABLE without the packages of `hanse[torch]`.
    """
    from hanse.trained import read_verified, require_torch

    require_torch()  # before anything is fetched
    with tempfile.TemporaryDirectory(prefix="hanse-model-") as folder:
        path = save_model(found, Path(folder) / "model.safetensors", digest=digest, ca=ca, patience=patience)
        return read_verified(path, found.version.record)


def save_output(found: OutputLink, path: Path, *, ca: Path | None, patience: float) -> Path:
    """Download what a study has made, verify it, and only then store it, with its signed record beside it.

    Args:
        found: a presigned link, the object's digest, and its signed record, where the hub is not of before 0.2.0.
        ca, patience: as for `save_model`.

    Raises:
        HanseError: TAMPERED when it is not what the hub recorded; TOO_LARGE; UNAVAILABLE; NO_SPACE.
    """
    from hanse.verification import verify_output
    from hanse_fabric.messages import ObjectRef
    from hanse_fabric.tensors.refs import verify_file

    wanted, signed = found.output, None if found.signed is None else found.signed.record
    with _fetched(found.url, path, wanted.size, ca, patience) as unverified:
        verify_file(ObjectRef(digest=wanted.digest, size=wanted.size, leaves=wanted.leaves), unverified)
        if signed is not None:
            verify_output(unverified, signed, trusted_key=signed.public_key)
        unverified.replace(path)
        if signed is not None:
            record_path(path).write_bytes(signed.canonical())
    return path


@contextmanager
def _fetched(url: str, path: Path, size: int, ca: Path | None, patience: float) -> Iterator[Path]:
    """What a link leads to, beside `path`; gone afterwards, unless it was renamed."""
    from hanse_fabric.store.transfer import HttpTransfer

    unverified = path.with_name(path.name + ".unverified")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(HttpTransfer(ca, patience=patience)) as transfer:
            transfer.fetch(url, unverified, limit=size)
        try:
            yield unverified
        finally:
            unverified.unlink(missing_ok=True)
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: cannot be written: {error.strerror}") from None
