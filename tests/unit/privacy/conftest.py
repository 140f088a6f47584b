"""Five sites whose masks cancel, and a session of theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_disk import tmp_path, tmp_path_factory
from pairwise_sites import SESSION, Rehearsal, Session

__all__ = ["tmp_path", "tmp_path_factory"]


@pytest.fixture
def five(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path, [f"site-{at}" for at in range(5)])


@pytest.fixture
def session(five: Rehearsal) -> Session:
    request = five.open(SESSION)
    orders = five.share(request)
    return Session(five, request, orders, five.mask(request, orders))


@pytest.fixture
def shared(five: Rehearsal) -> Session:
    """A session whose members have shared, and masked nothing yet."""
    request = five.open(SESSION)
    return Session(five, request, five.share(request), {})
