"""Folders in memory, for tests that wait for the disk longer than they compute.

Sites and services sync what they write, for which a disk takes some milliseconds each time, and stories of kills write
thousands of times. No test cuts the power: a killed process's files stay, in memory as on a disk. A conftest takes
these fixtures for its folder, where no test starts a site's worker: its sandbox has a /dev/shm of its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of a random name in it
_ROOM = 4 << 30


class Folders:
    """What tests use of pytest's own `TempPathFactory`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def mktemp(self, name: str) -> Path:
        """A new folder, whose name begins so."""
        return Path(tempfile.mkdtemp(prefix=name, dir=self._root))


@contextmanager
def folders_in_memory(usual: pytest.TempPathFactory) -> Iterator[pytest.TempPathFactory | Folders]:
    """Makes folders in memory; as always where there is too little of it, or PYTEST_DEBUG_TEMPROOT names a place."""
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or not _has_room():
        yield usual
        return
    with tempfile.TemporaryDirectory(prefix="hanse-tests-", dir=_MEMORY) as root:
        yield Folders(Path(root))


@pytest.fixture(scope="session")
def tmp_path_factory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[pytest.TempPathFactory | Folders]:
    """Makes folders in memory, in place of pytest's own."""
    with folders_in_memory(tmp_path_factory) as folders:
        yield folders


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory | Folders) -> Iterator[Path]:
    """A folder of the test's own, which ends with it. In PYTEST_DEBUG_TEMPROOT, what a failed test leaves is kept."""
    path = tmp_path_factory.mktemp("test")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _has_room() -> bool:
    return os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM
