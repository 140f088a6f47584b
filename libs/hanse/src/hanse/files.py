"""Files that the SDK reads and writes on the user's side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse.calls import Call
    from hanse.transport import SyncTransport

_MAX_TEXT = 1 << 20


def read_file(path: Path, what: str) -> str:
    """A small text file; errors name it and say what it was to be."""
    try:
        if path.stat().st_size > _MAX_TEXT:
            raise HanseError(ErrorCode.TOO_LARGE, f"{what} {path}: more than {_MAX_TEXT} bytes")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{what} {path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what} {path}: cannot be read: {error}") from None


def record_path(model: Path) -> Path:
    """Where the signed record of a downloaded model lies."""
    return model.with_name(model.name + ".json")


def save_model(transport: SyncTransport, call: Call[dict[str, Any]], path: Path) -> Path:
    """Download a model version, verify it, and store it with its signed record beside it."""
    from hanse_fabric.models import verify_model

    from hanse_fabric.messages import ModelVersion

    answer = transport.send(call)
    record = ModelVersion.decode(json.dumps(answer["version"]).encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    unverified = path.with_name(path.name + ".unverified")
    try:
        transport.download(answer["url"], unverified, record.size)
        verify_model(unverified, record, trusted_key=record.public_key)
        unverified.replace(path)
    finally:
        unverified.unlink(missing_ok=True)
    record_path(path).write_bytes(record.canonical())
    return path
