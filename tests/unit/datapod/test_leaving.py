"""A site leaves: the hub hears of it by the site's own key, the keys are removed, the site's records stay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clocks import HandClock
from hanse_datapod.cli import main
from hanse_datapod.home import left as left_module
from hanse_datapod.home.left import FILE, left
from hanse_datapod.home.outbox import LOG, Outbox, verify_log
from hanse_datapod.process.participant import join
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.durable import sole_owner
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site import enrol, load_identity
from hub_api import Api, replica

MEMBER = "/v1/projects/alpha/participants/north"
STAYS = ("privacy.jsonl", "privacy.head", "state/run/local-1.safetensors", "policy.yaml", "ward.csv")
GOES = ("work/run.task.update", "made/spare", "cache/model", "pairwise/run/key", "journal.jsonl", "now.json")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with replica(MemoryBroker(), tmp_path / "store", HandClock(datetime.now(UTC))) as one:
        yield one


@pytest.fixture
async def owner(api: Api) -> str:
    return await api.make_owner("alpha")


@pytest.fixture
async def home(api: Api, owner: str, tmp_path: Path) -> Path:
    """That of a site which has joined, with files of every kind, the administrator's own among them."""
    made = tmp_path / "home"
    await enrol(address(api), await invited(api, owner), made)
    for name in (*STAYS, *GOES):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("{}")
    return made


def address(api: Api) -> str:
    return str(api.client.make_url("")).rstrip("/")


async def invited(api: Api, owner: str) -> str:
    return str((await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"])


async def leave(home: Path, *more: str) -> int:
    return await asyncio.to_thread(main, ["leave", "--home", str(home), *more])


def entries(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / LOG).read_text().splitlines()]


async def test_a_site_that_leaves_keeps_its_log_its_ledger_and_what_is_its_own(
    api: Api, owner: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = address(api)
    assert await leave(home, "--reason", "the study has ended", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["project"], told["participant"], told["told"]) == ("alpha", "north", True)
    seen = await api.ok("GET", MEMBER, owner)
    assert (seen["revoked"], seen["left_at"] is None) == (True, False)
    (audited,) = (await api.ok("GET", "/v1/projects/alpha/audit?action=participant.leave", owner))["events"]
    assert audited["detail"] == {"reason": "the study has ended"}

    assert [name for name in STAYS if not (home / name).exists()] == []
    assert [
        name for name in (*GOES, "signing.pem", "bus.seed", "bus.creds", "site.json") if (home / name).exists()
    ] == []
    assert (entries(home)[-1]["what"], entries(home)[-1]["to"]) == ("leave", f"{url}/v1/leave")
    assert verify_log(home).broken is None
    assert {"signing.pem", "pairwise", "site.json"} <= set(told["removed"])
    assert {"outbox.jsonl", "privacy.jsonl", "state", FILE} <= set(told["kept"])

    assert await leave(home) == 0, "again: nothing is left to do"
    assert "it was done before" in capsys.readouterr().out
    assert await leave(home.parent) == ErrorCode.NOT_FOUND.value.exit_status, "a folder of no site"


async def test_a_home_that_has_left_joins_again_with_new_keys_and_goes_on_with_its_log(
    api: Api, owner: str, home: Path
) -> None:
    before = load_identity(home)
    assert before is not None
    first = before.signing_key.public_bytes
    assert await leave(home) == 0
    without: Any = SimpleNamespace(join_url="", accept="")
    outbox = Outbox(home)
    with pytest.raises(HanseError, match="has left project alpha on"):
        await join(home, outbox, without, "", SYSTEM_CLOCK)
    outbox.close()
    joined = await enrol(address(api), await invited(api, owner), home)
    assert joined.signing_key.public_bytes != first
    assert await leave(home) == 0, "the end of the first membership is not that of the second"
    assert [entry["what"] for entry in entries(home)] == ["leave", "leave"]


async def test_leaving_waits_until_the_datapod_is_stopped_and_names_what_it_works_on(
    api: Api, owner: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sole_owner(home):
        assert await leave(home) == ErrorCode.LOCKED.value.exit_status
        (home / "now.json").write_text(json.dumps({"tasks": [{"run": "abc", "step": "r7-train"}]}))
        assert await leave(home) == ErrorCode.LOCKED.value.exit_status
        assert "it works on r7-train of run abc" in capsys.readouterr().err
    assert load_identity(home) is not None
    assert not (await api.ok("GET", MEMBER, owner))["revoked"]


async def test_where_the_hub_is_away_nothing_is_removed_unless_it_is_gone_for_good(
    api: Api, owner: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await api.client.close()
    assert await leave(home) == ErrorCode.UNAVAILABLE.value.exit_status
    assert "--without-hub" in capsys.readouterr().err
    assert load_identity(home) is not None
    assert await leave(home, "--without-hub") == 0
    assert "the hub was not told" in capsys.readouterr().out
    assert not (home / "signing.pem").exists()


async def test_a_site_that_the_owner_has_revoked_leaves_too(api: Api, owner: str, home: Path) -> None:
    await api.ok("POST", f"{MEMBER}/revoke", owner)
    assert await leave(home) == 0
    assert not (home / "signing.pem").exists()
    assert (await api.ok("GET", MEMBER, owner))["left_at"] is None, "the owner has ended it"


@pytest.mark.parametrize("after", range(4))
async def test_killed_while_it_leaves_it_leaves_when_it_is_asked_again(
    api: Api, owner: str, home: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Before the hub is told; before it is noted that it was; before anything is removed; with a part removed."""
    seen = 0

    def killed(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    if after == 0:
        monkeypatch.setattr("hanse_site.leaving.post", killed)
    elif after == 1:
        monkeypatch.setattr(left_module, "note_left", killed)
    elif after == 2:
        monkeypatch.setattr(left_module, "remove_membership", killed)
    else:
        unlink = Path.unlink

        def unlinked(path: Path, missing_ok: bool = False) -> None:
            nonlocal seen
            if path.parent == home and path.name != "lock":
                seen += 1
                if seen > after:
                    raise KeyboardInterrupt
            unlink(path, missing_ok=missing_ok)

        monkeypatch.setattr(Path, "unlink", unlinked)
    assert await leave(home) == 130
    monkeypatch.undo()
    assert load_identity(home) is not None, "its record goes last"
    assert await leave(home) == 0
    assert load_identity(home) is None
    found = left(home)
    assert found is not None
    assert found.told
    events = (await api.ok("GET", "/v1/projects/alpha/audit?action=participant.leave", owner))["events"]
    assert len(events) == 1


async def test_a_log_that_cannot_be_written_leaves_the_site_a_member(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise HanseError(ErrorCode.NO_SPACE, "the disk is full")

    monkeypatch.setattr(Outbox, "append", full)
    assert await leave(home) == ErrorCode.NO_SPACE.value.exit_status
    assert load_identity(home) is not None
