"""Where the libraries and devices lie that a worker's process needs, whatever its site's data are."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys")
_OF_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "passwd", "group", "nsswitch.conf", "hosts",
    "host.conf", "resolv.conf", "gai.conf", "services", "protocols", "mime.types", "ssl", "pki", "ca-certificates",
    "alternatives", "fonts", "OpenCL", "vulkan",
)  # fmt: skip
_DEVICES = ("null", "zero", "full", "random", "urandom", "kfd", "dri")

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - no file of ours
"""Through which the processes that load data hand it on."""


def of_the_system() -> list[Path]:
    """The system's programs, libraries, and what these read of /etc. No more of it: keys and policies lie there."""
    return [*map(Path, _SYSTEM), *(Path("/etc", name) for name in _OF_ETC)]


def of_python(own: Collection[Path]) -> list[Path]:
    """Python, and what it imports.

    Args:
        own: the worker's folders; beside them lie the datapod's keys, so no folder that holds one is opened.
    """
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    found = {Path(name).absolute() for name in named if name}
    return sorted(path for path in found if not any(path in (folder, *folder.parents) for folder in own))


def of_devices() -> list[Path]:
    """Devices that all may use, and those of GPUs."""
    return [*(Path("/dev", name) for name in _DEVICES), *sorted(Path("/dev").glob("nvidia*"))]
