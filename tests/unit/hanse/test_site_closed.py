"""A site that is closed while its loop over tasks is somewhere in the middle: the loop ends, without an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hanse import site as sites
from hanse_fabric.messages import Presence, Task
from hanse_site.link import SiteLink


class StuckLink:
    """A link whose hub says nothing about one task, and has no other."""

    def __init__(self, *, fresh: bool) -> None:
        self.fresh, self.seconds_left, self.task = fresh, 60.0, None
        self.asked = threading.Event()

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[AsyncIterator[Any]]:
        async def found() -> AsyncIterator[Any]:
            if self.fresh:
                self.asked.set()
                await asyncio.Event().wait()
            yield self

        yield found()

    async def is_open(self, _task: Task | None) -> bool:
        self.asked.set()
        await asyncio.Event().wait()
        return True

    def presence(self) -> Any:
        async def said() -> Presence | None:
            return None

        return said()

    async def close(self) -> None: ...


@pytest.mark.parametrize("fresh", [True, False], ids=["waits for a task", "asks whether a task is still open"])
def test_a_loop_over_tasks_ends_when_another_thread_closes_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    link = StuckLink(fresh=fresh)

    async def ready(*_: Any) -> Any:
        return link

    monkeypatch.setattr(sites, "_identity", ready)
    monkeypatch.setattr(SiteLink, "connect", ready)
    site = sites.Site("http://hub.example", None, home=tmp_path, ca=None)
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(list(site.tasks()))
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert link.asked.wait(10)
    site.close()
    thread.join(10)
    assert ended == [[]]
