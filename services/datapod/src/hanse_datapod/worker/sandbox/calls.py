"""A filter of system calls (seccomp): sockets of few families, no kernel interfaces that reach around the sandbox."""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Iterable, Iterator

from hanse_datapod.worker.sandbox.kernel import call

_NUMBERS = {
    "x86_64": {
        "socket": 41, "clone": 56, "truncate": 76, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "setns": 308, "bpf": 321, "userfaultfd": 323,
    },
    "aarch64": {
        "socket": 198, "clone": 220, "truncate": 45, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
        "perf_event_open": 241, "setns": 268, "bpf": 280, "userfaultfd": 282,
    },
}  # fmt: skip
_EVERYWHERE = {"io_uring_setup": 425, "clone3": 435}
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_OTHER_ABI = 0x40000000
_NEW_USER = 0x10000000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

LOCAL = (socket.AF_UNIX,)
"""Sockets of one machine: no network at all."""
INTERNET = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""And of the network that the process has."""


def known() -> bool:
    """Whether there is a filter for this machine's processor."""
    return platform.machine() in _NUMBERS


def restrict(families: Iterable[int], *, truncate: bool) -> None:
    """Filter the calls of this process and of all that it starts.

    Args:
        families: of sockets that may be made.
        truncate: whether files may be cut by their path.

    Raises:
        OSError: where the kernel refuses.
    """
    code = b"".join(_program(families, truncate=truncate))
    text = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(text))
    call("prctl", _PR_SET_SECCOMP, _MODE_FILTER, program, 0, 0)


def _program(families: Iterable[int], *, truncate: bool) -> Iterator[bytes]:
    machine = platform.machine()
    numbers = _NUMBERS[machine] | _EVERYWHERE
    yield _step(_LOAD, _ARCHITECTURE_AT)
    yield from _if(_EQUAL, _ARCHITECTURE[machine], otherwise=_KILL)
    yield _step(_LOAD, _NUMBER_AT)
    yield from _if(_AT_LEAST, _OTHER_ABI, then=_ERROR | errno.EPERM)
    # The C library takes clone where clone3, whose flags a filter cannot see, is not there.
    yield from _if(_EQUAL, numbers.pop("clone3"), then=_ERROR | errno.ENOSYS)
    made, cloned, cut = numbers.pop("socket"), numbers.pop("clone"), numbers.pop("truncate")
    for number in (*numbers.values(), *(() if truncate else (cut,))):
        yield from _if(_EQUAL, number, then=_ERROR | errno.EPERM)
    yield _step(_EQUAL, cloned, 0, 4)
    yield _step(_LOAD, _FIRST_ARGUMENT_AT)
    yield from _if(_ANY_BIT, _NEW_USER, then=_ERROR | errno.EPERM)
    yield _step(_RETURN, _ALLOW)
    yield _step(_EQUAL, made, 1, 0)
    yield _step(_RETURN, _ALLOW)
    yield _step(_LOAD, _FIRST_ARGUMENT_AT)
    for family in families:
        yield from _if(_EQUAL, family, then=_ALLOW)
    yield _step(_RETURN, _ERROR | errno.EACCES)


def _if(test: int, value: int, *, then: int | None = None, otherwise: int = 0) -> tuple[bytes, bytes]:
    """Where the test is true, return `then`; without one, where it is false, return `otherwise`."""
    if then is None:
        return _step(test, value, 1, 0), _step(_RETURN, otherwise)
    return _step(test, value, 0, 1), _step(_RETURN, then)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)
