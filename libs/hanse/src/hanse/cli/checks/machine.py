"""This machine: Python, the installed release, programs, disk, and the right to write."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from hanse.cli.checks.finding import Finding, finding

_LEAST_DISK = 1 << 30
_SERVERS = ("nats-server", "weed")


def check_machine(folder: Path) -> Iterator[Finding]:
    """Check what is installed, and `folder`, where models and logs are to be written."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield finding("python", (3, 11) <= sys.version_info[:2] <= (3, 13), version, "use Python 3.11 to 3.13")
    yield _versions(_installed())
    for program in _SERVERS:
        yield Finding(program, True, _program(program) or "absent (only `hanse up` needs it: hanse[hub])")
    if not folder.is_dir():
        yield Finding("disk", False, f"{folder}: no such folder", "make it, or name another with --folder")
        return
    free = shutil.disk_usage(folder).free
    yield finding("disk", free >= _LEAST_DISK, f"{free >> 20} MiB free", "free 1 GiB: models and logs need it")
    whole = folder.absolute()
    yield finding("permissions", os.access(folder, os.W_OK | os.X_OK), f"{whole}", f"make {whole} writable for you")


def _versions(installed: dict[str, str]) -> Finding:
    releases = sorted(set(installed.values()))
    if len(releases) == 1:
        return Finding("versions", True, f"{releases[0]} ({len(installed)} distributions)")
    shown = ", ".join(f"{name} {version}" for name, version in sorted(installed.items()))
    return Finding("versions", False, shown, "install one release of all hanse distributions")


def _installed() -> dict[str, str]:
    named = ((dist.metadata["Name"] or "", dist.version) for dist in metadata.distributions())
    return {name: version for name, version in named if name == "hanse" or name.startswith(("hanse-", "hanse_"))}


def _program(name: str) -> str | None:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
