"""Small text files that people write: read with limits, and with errors of one line that name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError

_MAX_BYTES = 1 << 20


def read_text(path: Path, what: str) -> str:
    """A file's text.

    Args:
        what: the file is to be, for errors: `job file`.

    Raises:
        HanseError: NOT_FOUND; TOO_LARGE; INVALID_INPUT for a folder, what may not be read, and what is not UTF-8.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise HanseError(ErrorCode.TOO_LARGE, f"{what} {path}: more than {_MAX_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{what} {path}: there is no such file") from None
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what} {path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what} {path}: cannot be read as UTF-8: {error}") from None


def parse_yaml(text: str | bytes, what: str) -> Any:
    """What a text in YAML, or JSON, says.

    Raises:
        HanseError: INVALID_INPUT, where it says nothing in YAML, something that Python has no value for, or something
            that JSON has none for (`strict_json`); where it nests deeply, or its aliases make it large.
    """
    # Here, because most of what reads files reads none in YAML.
    import yaml

    from hanse_fabric.bounded_yaml import BoundedLoader

    try:
        found = yaml.load(text, BoundedLoader)  # noqa: S506 - a SafeLoader, with limits
    except (RecursionError, OverflowError):
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what}: not YAML: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{what}: not YAML: {' '.join(str(error).split())}") from None
    return found


def read_yaml(path: Path, what: str) -> Any:
    """What a file in YAML says; raises as `read_text` and `parse_yaml` do."""
    return parse_yaml(read_text(path, what), f"{what} {path}")
