"""A site on an in-process bus, with a small worker in numpy's place: enough to drive the real agent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from site_actors import Site


@pytest.fixture
async def site(tmp_path: Path):
    made = Site(tmp_path / "site")
    yield made
    await made.stop()
