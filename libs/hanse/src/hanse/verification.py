"""Verification without any server of a model version, or of what a study has made: that the registry signed it, and
that a file is it."""

from __future__ import annotations

from pathlib import Path

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages.models import ModelVersion
from hanse_fabric.messages.outputs import StudyOutput
from hanse_fabric.tensors.digest import digest_file


def verify_record(record: ModelVersion, trusted_key: bytes) -> None:
    """Check that the holder of `trusted_key` (32 raw bytes) recorded this version.

    Raises:
        HanseError: TAMPERED when the record names another key, or the signature is not over this record.
    """
    _verify_signature(record, trusted_key, f"version {record.version} of {record.project}")


def verify_output(path: Path, record: StudyOutput, trusted_key: bytes) -> None:
    """Check that the holder of `trusted_key` (32 raw bytes) signed what a study has made, and that the file is it.

    Raises:
        HanseError: TAMPERED naming what does not match; NOT_FOUND when there is no such file.
    """
    verify_output_record(record, trusted_key)
    _verify_file(path, record)


def verify_output_record(record: StudyOutput, trusted_key: bytes) -> None:
    """Check that the holder of `trusted_key` (32 raw bytes) signed this.

    Raises:
        HanseError: TAMPERED when the record names another key, or the signature is not over this record.
    """
    _verify_signature(record, trusted_key, f"output {record.name} of run {record.run}")


def _verify_signature(record: ModelVersion | StudyOutput, trusted_key: bytes, what: str) -> None:
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
    _verify_file(path, record)


def _verify_file(path: Path, record: ModelVersion | StudyOutput) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{path}: there is no such file") from None
    if size != record.size:
        raise HanseError(ErrorCode.TAMPERED, f"{path}: {size} bytes, {record.size} are recorded")
    digest, _ = digest_file(path)
    if digest != record.digest:
        raise HanseError(ErrorCode.TAMPERED, f"{path}: its digest is {digest}, {record.digest} is recorded")
