"""Pages of a long audit: each holds what a look at all of it gives, and is read from the end that it is near to."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.messages import AuditEvent
from hanse_fabric.subjects import AUDIT
from hub_api import START, Api

ENTRIES = 3_000
ACTIONS = ("run.submit", "run.cancel", "model.promote")


@pytest.fixture
async def owner(api: Api, owner: str) -> str:
    """A key of a project's owner; the audit has many entries of that project, and many more of others."""
    draw = random.Random(5)
    for number in range(ENTRIES):
        project = "alpha" if draw.random() < 0.3 else draw.choice(("beta", "gamma"))
        entry = AuditEvent(
            project=project, at=START + timedelta(minutes=number), actor=f"person:p{number % 5}",
            action=draw.choice(ACTIONS), subject=f"run:{number:012d}", authority="owner", detail={},
        )  # fmt: skip
        await api.hub.bus.publish(AUDIT.of(project=project), entry.encode())
    return owner


Asked = dict[str, Any]
WANTED: tuple[tuple[Asked, Callable[[Asked], bool]], ...] = (
    ({}, lambda _: True),
    ({"action": "run"}, lambda entry: entry["action"].startswith("run.")),
    ({"actor": "person:p3", "action": "model.promote"},
     lambda entry: (entry["actor"], entry["action"]) == ("person:p3", "model.promote")),
    ({"contains": "no such words"}, lambda _: False),
)  # fmt: skip


async def page(api: Api, key: str, **query: Any) -> list[Asked]:
    asked = urlencode({name: str(value).lower() for name, value in query.items()})
    events: list[Asked] = (await api.ok("GET", f"/v1/projects/alpha/audit?{asked}", key))["events"]
    return events


@pytest.mark.parametrize(("query", "wanted"), WANTED)
async def test_any_page_is_that_of_the_whole(
    api: Api, owner: str, query: Asked, wanted: Callable[[Asked], bool]
) -> None:
    whole = await page(api, owner)
    assert 0.2 * ENTRIES < len(whole) < 0.4 * ENTRIES
    assert [entry["sequence"] for entry in whole] == sorted(entry["sequence"] for entry in whole)
    last = whole[-1]["sequence"]
    draw = random.Random(7)
    for _ in range(12):
        after, limit = draw.choice((0, draw.randrange(last), last, last + 9)), draw.choice((1, 50, 10_000))
        before = draw.choice((None, draw.randrange(1, last), last, last + 1, last + 9_999))
        newest = draw.random() < 0.5
        bounds = {"after": after, "limit": limit, "newest": newest} | ({} if before is None else {"before": before})
        right = [
            entry for entry in whole
            if wanted(entry) and entry["sequence"] > after and (before is None or entry["sequence"] < before)
        ]  # fmt: skip
        assert await page(api, owner, **bounds, **query) == (right[::-1] if newest else right)[:limit], bounds


async def test_the_newest_page_of_a_long_audit_takes_few_entries(
    api: Api, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = 0
    decode = AuditEvent.decode

    def counted(data: bytes) -> AuditEvent:
        nonlocal decoded
        decoded += 1
        return decode(data)

    async def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("all of it is read")

    monkeypatch.setattr(AuditEvent, "decode", counted)
    monkeypatch.setattr(MemoryBus, "snapshot", never)
    newest = await page(api, owner, newest=True, limit=50)
    before = newest[-1]["sequence"]
    assert len(await page(api, owner, newest=True, limit=50, before=before)) == len(newest) == 50
    assert decoded == 100


async def test_a_project_without_entries_has_an_empty_page(api: Api, owner: str) -> None:
    operator = await api.make_key("operator")
    assert (await api.ok("GET", "/v1/audit?newest=true", operator))["events"] == []
