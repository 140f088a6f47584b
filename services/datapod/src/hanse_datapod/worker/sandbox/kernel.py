"""System calls that Python does not have, by ctypes."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_CAPABILITIES_V3 = 0x20080522


def call(name: str, *arguments: object) -> int:
    """Call the C library's function; its result.

    Raises:
        OSError: where it is negative; with ENOSYS where there is no such function.
    """
    result = int(getattr(_libc, name)(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    """Call the kernel by a system call's number; see `call`."""
    return call("syscall", ctypes.c_long(number), *arguments)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    call("prctl", _PR_SET_PDEATHSIG, int(number))


def adopt_orphans() -> None:
    """Become the parent of all processes below this one whose own parent ends."""
    call("prctl", _PR_SET_SUBREAPER, 1)


def gain_nothing() -> None:
    """Give up all capabilities, and that programs which are started could gain any."""
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(64):
        try:
            call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:  # there are no more, or it has none that it could drop
            break
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    with suppress(PermissionError):  # a filter of the service's: who has none needs not give them up
        call("capset", header, (ctypes.c_uint32 * 6)())
