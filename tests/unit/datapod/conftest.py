"""A site on an in-process bus, with a small worker in numpy's place: enough to drive the real agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_disk import tmp_path, tmp_path_factory
from unit.datapod.site_actors import Site

__all__ = ["tmp_path", "tmp_path_factory"]


@pytest.fixture
async def site(tmp_path: Path):
    made = Site(tmp_path / "site")
    yield made
    await made.stop()
