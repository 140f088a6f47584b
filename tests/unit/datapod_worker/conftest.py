"""The workers here are forked from one process, but where their start is the point: a test of `started_anew`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import forked_workers
from hanse_datapod.worker.client import process


@pytest.fixture(scope="module", autouse=True)
def forked(worker_nursery: forked_workers.Nursery) -> Iterator[None]:
    """Workers of a file's tests begin with torch loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "take_prepared", worker_nursery.worker)
        yield


@pytest.fixture
def started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a test are programs of their own, as a datapod starts them; asked for before the worker."""

    async def none() -> None:
        return None

    monkeypatch.setattr(process, "take_prepared", none)
