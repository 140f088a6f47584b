"""Landlock: this process and all that it starts open what is listed, and no other file (Linux 5.13 and later)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hanse_datapod.worker.sandbox.kernel import syscall

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of rights over files, by version."""
_OTHERS_SOCKETS_AND_SIGNALS = 3
_SCOPED_SINCE = 6
TRUNCATES_SINCE = 3
"""Before this version, files can be cut by their paths alone."""

READ, WRITE, DEVICE = _EXECUTE | _READ | _LIST, (1 << 16) - 1, _READ | _WRITE | _LIST | _IOCTL


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    try:
        return syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    except OSError:
        return 0


def restrict(allowed: Iterable[tuple[Path, int]]) -> None:
    """Close all files but those at or below these paths, each with its rights. Paths that are not there are left out.

    Raises:
        OSError: where the kernel refuses.
    """
    known = version()
    handled = (1 << _RIGHTS[min(known, max(_RIGHTS))]) - 1
    fields = [handled, 0, _OTHERS_SOCKETS_AND_SIGNALS] if known >= _SCOPED_SINCE else [handled]
    rules = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = syscall(_CREATE, rules, ctypes.c_size_t(ctypes.sizeof(rules)), ctypes.c_uint32(0))
    try:
        for path, rights in allowed:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                _allow(ruleset, path, rights & handled)
        syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _Beneath(rights if path.is_dir() else rights & _OF_FILES, descriptor)
        syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(descriptor)
