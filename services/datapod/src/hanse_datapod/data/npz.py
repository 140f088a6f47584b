"""NPZ files with arrays `x` and `y`. Nothing in them is unpickled."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from hanse_datapod.data.check import Raw
from hanse_fabric.errors import ErrorCode, HanseError


def read_npz(path: Path, max_bytes: int) -> Raw:
    """Arrays `x` and `y`.

    Raises:
        HanseError: INVALID_INPUT where it is no such file; TOO_LARGE where it unpacks to more than `max_bytes`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(item.file_size for item in archive.infolist())
        if unpacked > max_bytes:
            raise HanseError(
                ErrorCode.TOO_LARGE, f"data file {path}: unpacks to {unpacked} bytes, at most {max_bytes} are allowed"
            )
        with np.load(path, allow_pickle=False) as arrays:
            missing = {"x", "y"} - set(arrays.files)
            if missing:
                raise HanseError(
                    ErrorCode.INVALID_INPUT,
                    f"data file {path}: array {min(missing)} is missing, it has {', '.join(arrays.files) or 'none'}",
                    hint="write it with numpy.savez(path, x=..., y=...)",
                )
            return Raw(f"data file {path}", arrays["x"], arrays["y"], "example")
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"data file {path}: it is not an NPZ file of plain arrays ({error})",
            hint="write it with numpy.savez(path, x=..., y=...), without object arrays",
        ) from None  # fmt: skip
