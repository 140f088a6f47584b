"""What a site hands in is lost where the hub's process dies that has it: it is handed in again while there is time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clocks import in_virtual_time
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_site import SiteLink
from unit.site.test_one_place import identity_in


@pytest.mark.parametrize(("seconds", "tries"), [(1.0, 1), (5.0, 2), (30.0, 2), (300.0, 2)])
@in_virtual_time
async def test_a_lost_update_is_handed_in_again_before_the_step_is_over(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, tries: int
) -> None:
    """Unless there is no time for a second one."""
    link = SiteLink(MemoryBus(MemoryBroker(clock)), identity_in(tmp_path), cast("Any", None))
    asked: list[float] = []

    async def lost_once(*_: object, timeout: float, **__: object) -> bytes:
        asked.append(timeout)
        if len(asked) > 1:
            return b""
        await clock.sleep(timeout)
        raise HanseError(ErrorCode.TIMEOUT, "no answer")

    monkeypatch.setattr(type(link.doors), "ask", lost_once)
    task = cast("Task", SimpleNamespace(run="a" * 12, step="r1-train"))
    begun = clock.monotonic()
    with suppress(HanseError):
        await link.send_update_bytes(task, ref_of_bytes(b"x"), b"x", seconds=seconds)
    assert len(asked) == tries
    assert clock.monotonic() - begun <= min(seconds, 11.0)
    assert all(1.0 <= timeout <= 10.0 for timeout in asked), asked
