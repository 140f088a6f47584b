"""Records and messages that the hub cannot read: lists go on without them, and the operator is shown them."""

from __future__ import annotations

import base64
from typing import Any

from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.set_aside import Aside, kept
from hanse_fabric.subjects import PRESENCE, PROJECTS
from hub_api import SCHEMA

WRONG: HanseError = invalid("sent_at", "2026", "a time with its zone")


async def test_a_list_goes_on_without_rubbish_and_the_operator_sees_where_it_is(api: Any) -> None:
    operator = await api.make_key("operator")
    await api.ok("POST", "/v1/projects", operator, {"name": "alpha", "schema": SCHEMA})
    await api.hub.bus.publish(PROJECTS.of(project="rubbish"), b"[[[")
    assert [each["name"] for each in (await api.ok("GET", "/v1/projects", operator))["projects"]] == ["alpha"]
    assert (await api.ok("GET", "/v1/status", operator))["projects"] == 1
    [found] = (await api.ok("GET", "/v1/unreadable", operator))["records"]
    assert (found["subject"], found["code"]) == ("$KV.hanse_projects.rubbish", "invalid-input")
    status, _, message = await api.refused("GET", "/v1/projects/rubbish", operator)
    assert status == 422
    assert "$KV.hanse_projects.rubbish cannot be read" in message


async def test_a_message_that_was_set_aside_is_shown_to_the_operator_alone(api: Any) -> None:
    subject = PRESENCE.of(project="alpha", participant="north")
    await Aside(api.hub.bus).put(subject, b"no message" * 1000, WRONG, sequence=7)
    [found] = (await api.ok("GET", "/v1/unreadable", await api.make_key("operator")))["messages"]
    assert (found["subject"], found["sequence"], found["size"]) == (subject, 7, 10_000)
    assert (b"no message" * 1000).startswith(base64.b64decode(found["head"]))
    assert "sent_at" in found["reason"]
    assert (await api.refused("GET", "/v1/unreadable", await api.make_key("owner", "alpha")))[0] == 403


async def test_a_sender_of_many_has_one_kept_a_second_and_takes_no_other_senders_place(api: Any) -> None:
    aside = Aside(api.hub.bus)
    for participant in ("north", "south"):
        for number in range(50):
            subject = PRESENCE.of(project="alpha", participant=participant)
            await aside.put(subject, b"x", WRONG, sequence=number)
    assert [(each.subject.rsplit(".", 1)[1], each.sequence) for each in await kept(api.hub.bus)] == [
        ("north", 0), ("south", 0),
    ]  # fmt: skip
