"""Verification of a model version without any server: that the registry recorded it, and that a file is it."""

from __future__ import annotations

from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages.models import ModelVersion
from hanse_fabric.tensors.digest import digest_file


def verify_record(record: ModelVersion, trusted_key: bytes) -> None:
    """Check that the holder of `trusted_key` (32 raw bytes) recorded this version.

    Raises:
        HanseError: TAMPERED when the record names another key, or the signature is not over this record.
    """
    what = f"version {record.version} of {record.project}"
    if record.public_key != trusted_key:
        raise HanseError(
            ErrorCode.TAMPERED,
            f"{what}: recorded under another key than the trusted one",
            hint="ask the hub's operator",
        )
    VerifyKey(trusted_key).verify(record.signature, record.statement(), what=what)


def verify_model(path: Path, record: ModelVersion, trusted_key: bytes) -> None:
    """Check the record's signature, and that the file is the model that it records.

    Raises:
        HanseError: TAMPERED naming what does not match; NOT_FOUND when there is no such file.
    """
    verify_record(record, trusted_key)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{path}: there is no such file") from None
    if size != record.size:
        raise HanseError(ErrorCode.TAMPERED, f"{path}: {size} bytes, {record.size} are recorded")
    digest, _ = digest_file(path)
    if digest != record.digest:
        raise HanseError(ErrorCode.TAMPERED, f"{path}: its digest is {digest}, {record.digest} is recorded")
