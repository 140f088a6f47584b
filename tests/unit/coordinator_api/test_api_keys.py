"""API keys: made, used at every replica, revoked; the first one from a file; and signs of life of sites."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import HandClock
from hanse_coordinator.auth import FailureLimiter, register_bootstrap
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages import Presence
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.subjects import PRESENCE


async def test_a_key_made_at_one_replica_works_at_another_until_it_is_revoked(
    api: Any, other_api: Any, operator: str
) -> None:
    made = await api.ok("POST", "/v1/keys", operator, {"role": "owner", "name": "ada"})
    await other_api.ok("GET", "/v1/projects", made["key"])
    await api.ok("DELETE", f"/v1/keys/{made['id']}", operator)
    assert (await other_api.refused("GET", "/v1/projects", made["key"]))[0] == 401
    listed = (await api.ok("GET", "/v1/keys", operator))["keys"]
    assert [(item["name"], item["revoked"]) for item in listed][-1] == ("ada", True)
    assert "key" not in listed[-1]
    assert "hash" not in listed[-1]


async def test_a_key_expires_and_one_for_reading_changes_nothing(api: Any, operator: str) -> None:
    body = {"role": "owner", "name": "a report every night", "expires_in": 60, "read_only": True}
    made = await api.ok("POST", "/v1/keys", operator, body)
    assert (made["read_only"], made["expires_at"]) == (True, "2026-05-01T12:01:00Z")
    project = {"name": "alpha", "schema": {"kind": "open"}}
    _, code, message = await api.refused("POST", "/v1/projects", made["key"], project)
    assert (code, "for reading alone" in message) == ("forbidden", True)
    await api.ok("POST", "/v1/projects", operator, project)
    await api.ok("GET", "/v1/projects/alpha", made["key"])
    api.clock.advance(60)
    _, code, message = await api.refused("GET", "/v1/projects/alpha", made["key"])
    assert (code, "expired at 2026-05-01 12:01:00 UTC" in message) == ("unauthenticated", True)


async def test_a_key_does_not_revoke_itself(api: Any, operator: str) -> None:
    _, code, message = await api.refused("DELETE", f"/v1/keys/{operator.split('_')[1]}", operator)
    assert code == "conflict"
    assert "is the key that asks" in message


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"role": "site"}, "invalid-input"),
        ({"role": "operator", "project": "alpha"}, "invalid-input"),
        ({"role": "owner", "project": "none"}, "not-found"),
    ],
)
async def test_keys_that_make_no_sense_are_refused(api: Any, operator: str, body: Any, code: str) -> None:
    assert (await api.refused("POST", "/v1/keys", operator, body))[1] == code


async def test_the_secret_is_kept_as_a_hash_only(api: Any, operator: str) -> None:
    made = await api.ok("POST", "/v1/keys", operator, {"role": "owner"})
    entry = await api.hub.buckets.keys.require(key=made["id"])
    assert made["key"].split("_", 2)[2] not in entry.value.encode().decode()


async def test_the_first_key_is_registered_once_from_its_file(api: Any, tmp_path: Path) -> None:
    file, key = tmp_path / "key", make_api_key()
    file.write_text(key.text + "\n")
    for _ in range(2):
        await register_bootstrap(file, api.hub.buckets.keys, api.clock)
    assert await api.ok("GET", "/v1/status", key.text)
    await api.hub.buckets.keys.change(lambda old: old.model_copy(update={"revoked": True}), key=key.id)
    await register_bootstrap(file, api.hub.buckets.keys, api.clock)
    assert (await api.refused("GET", "/v1/status", key.text))[0] == 401


@pytest.mark.parametrize("content", ["", "sesame", None])
async def test_a_first_key_that_cannot_be_read_names_its_setting(api: Any, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    with pytest.raises(HanseError, match="HANSE_BOOTSTRAP_KEY_FILE"):
        await register_bootstrap(file, api.hub.buckets.keys, api.clock)


async def test_a_first_key_with_the_id_of_another_is_refused(api: Any, operator: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(operator[:-43] + "x" * 43)
    with pytest.raises(HanseError, match="another key's"):
        await register_bootstrap(file, api.hub.buckets.keys, api.clock)


def test_of_addresses_that_failed_too_often_a_few_at_once_make_the_bus_be_asked() -> None:
    limiter = FailureLimiter(HandClock(), allowed=1)
    limiter.failed("bad")
    with ExitStack() as asking:
        for _ in range(4):
            asking.enter_context(limiter.looking_up("bad", "token"))
        with pytest.raises(HanseError, match="too many failed attempts") as refusal:
            asking.enter_context(limiter.looking_up("bad", "token"))
        assert refusal.value.code is ErrorCode.UNAVAILABLE, "what was shown may be good"
        asking.enter_context(limiter.looking_up("good", "token"))
    with limiter.looking_up("bad", "token"):
        assert limiter.exhausted("bad")


def test_the_limiter_remembers_a_bounded_number_of_addresses() -> None:
    limiter = FailureLimiter(HandClock(), allowed=1, addresses=3)
    for address in "abcde":
        limiter.failed(address)
    assert [limiter.exhausted(address) for address in "abcde"] == [False, False, True, True, True]


async def test_participants_show_when_they_were_seen_and_how_far_their_clock_is(api: Any, owner: str) -> None:
    record = ParticipantRecord.model_validate(
        {
            "project": "alpha",
            "participant": "north",
            "public_key": "AAAA",
            "bus_key": "U",
            "enrolled_at": api.clock.now(),
        }
    )
    await api.hub.buckets.participants.create(record, project="alpha", participant="north")
    presence = Presence(
        project="alpha", participant="north", version="9.9", device="cuda",
        sent_at=api.clock.now() + timedelta(seconds=42),
    )  # fmt: skip
    await api.hub.bus.publish(PRESENCE.of(project="alpha", participant="north"), presence.encode())
    async with asyncio.timeout(60):
        while api.hub.presence.of("alpha", "north") is None:  # noqa: ASYNC110 - the watch tells nobody
            await asyncio.sleep(0)
    (seen,) = (await api.ok("GET", "/v1/projects/alpha/participants", owner))["participants"]
    assert (seen["online"], seen["version"], seen["device"], seen["clock_difference"]) == (True, "9.9", "cuda", 42.0)
    api.clock.advance(181)
    seen = await api.ok("GET", "/v1/projects/alpha/participants/north", owner)
    assert seen["online"] is False
