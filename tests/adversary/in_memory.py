"""A test's own folder in memory, for attacks on simulated hubs: their sites are tasks of this process, and sync what
they write. A module takes it in place of pytest's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_disk import Folders


@pytest.fixture
def tmp_path(memory: pytest.TempPathFactory | Folders) -> Iterator[Path]:
    path = memory.mktemp("test")
    yield path
    shutil.rmtree(path, ignore_errors=True)
