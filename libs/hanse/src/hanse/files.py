"""Files that the SDK reads and writes on the user's side."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
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
    from hanse_fabric.store.transfer import HttpTransfer

    record = found.version.record
    if record.digest != digest:
        raise HanseError(
            ErrorCode.TAMPERED, f"version {record.version}: the link is to {record.digest}, {digest} was asked for"
        )
    unverified = path.with_name(path.name + ".unverified")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(HttpTransfer(ca, patience=patience)) as transfer:
            transfer.fetch(found.url, unverified, limit=record.size)
        try:
            verify_model(unverified, record, trusted_key=record.public_key)
            unverified.replace(path)
        finally:
            unverified.unlink(missing_ok=True)
        record_path(path).write_bytes(record.canonical())
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: cannot be written: {error.strerror}") from None
    return path


def save_output(found: OutputLink, path: Path, *, ca: Path | None, patience: float) -> Path:
    """Download what a study has made, verify it, and only then store it.

    Args:
        found: a presigned link and the object's digest.
        ca, patience: as for `save_model`.

    Raises:
        HanseError: TAMPERED when it is not what the hub recorded; TOO_LARGE; UNAVAILABLE; NO_SPACE.
    """
    from hanse_fabric.messages import ObjectRef
    from hanse_fabric.store.transfer import HttpTransfer
    from hanse_fabric.tensors.refs import verify_file

    wanted = found.output
    unverified = path.with_name(path.name + ".unverified")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(HttpTransfer(ca, patience=patience)) as transfer:
            transfer.fetch(found.url, unverified, limit=wanted.size)
        try:
            verify_file(ObjectRef(digest=wanted.digest, size=wanted.size, leaves=wanted.leaves), unverified)
            unverified.replace(path)
        finally:
            unverified.unlink(missing_ok=True)
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path}: cannot be written: {error.strerror}") from None
    return path
