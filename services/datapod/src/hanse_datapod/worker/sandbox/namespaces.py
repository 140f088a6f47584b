"""Namespaces: processes, network, shared memory and a read-only view of the disk of this process's own."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hanse_datapod.worker.sandbox.kernel import call, syscall

_MOUNTS, _IPC, _USER, _PIDS, _NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_BIND, _RECURSIVE, _SLAVE, _READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC = 4096, 1 << 14, 1 << 19, 1, 2, 4, 8
_MOUNT_SETATTR, _HERE, _AT_RECURSIVE = 442, -100, 0x8000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_MOST_PROCESSES = 4096
_SERVICES = Path("/run")


def unshare(*, network: bool) -> bool:
    """Go into namespaces of a user that is the same as before, and has no rights outside. Children of this process are
    in a namespace of processes, too. False: this machine does not let it.

    Args:
        network: whether the network stays as it is.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        call("unshare", _USER | _MOUNTS | _IPC | _PIDS | (0 if network else _NETWORK))
        _write("setgroups", "deny")
        _write("uid_map", f"{user} {user} 1")
        _write("gid_map", f"{group} {group} 1")
        if not network:
            _raise_loopback()
    except OSError:
        return False
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = _MOST_PROCESSES if hard == resource.RLIM_INFINITY else min(hard, _MOST_PROCESSES)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    return True


def close_disk(writable: Iterable[Path], *, services: bool) -> None:
    """Make all read-only but these folders, with shared memory of this process's own.

    Args:
        services: whether the sockets of the machine's services stay, which name resolution may need.

    Raises:
        OSError: where the machine does not let it; what is done is done.
    """
    call("mount", b"none", b"/", None, _RECURSIVE | _SLAVE, None)
    folders = [os.fsencode(folder) for folder in writable]
    for folder in folders:
        call("mount", folder, folder, None, _BIND, None)
    _set(b"/", _AT_RECURSIVE, on=_READ_ONLY)
    for folder in folders:
        _set(folder, 0, off=_READ_ONLY)
    call("mount", b"tmpfs", b"/dev/shm", b"tmpfs", _NO_SUID | _NO_DEV, b"mode=1777")
    if not services and not any(_SERVICES in folder.parents for folder in writable):
        call("mount", b"tmpfs", os.fsencode(_SERVICES), b"tmpfs", _READ_ONLY | _NO_SUID | _NO_DEV, b"size=4k")


def own_processes() -> None:
    """Show this process's namespace in /proc, where the machine lets it; called in a child."""
    with suppress(OSError):  # elsewhere /proc shows other processes' names, and nothing that is theirs
        call("mount", b"proc", b"/proc", b"proc", _NO_SUID | _NO_DEV | _NO_EXEC, None)


def _write(name: str, text: str) -> None:
    Path("/proc/self", name).write_text(text)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.unpack_from("h", fcntl.ioctl(control, _GET_FLAGS, struct.pack("16s24x", b"lo")), 16)[0]
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))


def _set(path: bytes, flags: int, *, on: int = 0, off: int = 0) -> None:
    attributes = (ctypes.c_uint64 * 4)(on, off, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    syscall(_MOUNT_SETATTR, ctypes.c_int(_HERE), path, ctypes.c_uint(flags), attributes, size)
