"""A backup of a home: whole, of one moment, for its owner alone; and what is restored from it goes on."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clocks import HandClock
from hanse_datapod.cli import main
from hanse_datapod.home.backup import back_up
from hanse_datapod.home.folders import PAIRWISE
from hanse_datapod.home.outbox import Leaving, Outbox, verify_log
from hanse_datapod.home.place import require_place
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.durable import sole_owner
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site import enrol, load_identity
from hub_api import replica


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """Of a site that has joined, has begun to work, and has secrets of a sum under way."""
    made = tmp_path / "homes" / "north"
    async with replica(MemoryBroker(), tmp_path / "store", HandClock(datetime.now(UTC))) as api:
        key = await api.make_owner("alpha")
        invited = await api.ok("POST", "/v1/projects/alpha/invitations", key, {"participant": "north"})
        await enrol(str(api.client.make_url("")).rstrip("/"), str(invited["token"]), made)
    await asyncio.to_thread(require_place, made)
    outbox = Outbox(made)
    outbox.append(Leaving("result", "the hub", 1))
    outbox.close()
    for name in (f"{PAIRWISE}/run/key", "state/run/local-1.safetensors"):
        (made / name).parent.mkdir(parents=True)
        (made / name).write_text("content")
    return made


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file()]


def restored(file: Path, there: Path) -> Path:
    with tarfile.open(file) as archive:
        archive.extractall(there, filter="data")
    return there / "north"


async def test_what_is_restored_is_the_site_and_stops_until_its_administrator_says_why(
    home: Path, tmp_path: Path
) -> None:
    file, was = tmp_path / "north.tar.gz", load_identity(home)
    umask = os.umask(0)
    try:
        assert main(["backup", "--home", str(home), str(file)]) == 0
    finally:
        os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert files_in(tmp_path) == ["north.tar.gz"]
    again = restored(file, tmp_path / "again")
    found = load_identity(again)
    assert was is not None
    assert found is not None
    assert (found.record, found.signing_key.public_bytes) == (was.record, was.signing_key.public_bytes)
    assert verify_log(again) == verify_log(home)
    assert (again / "state/run/local-1.safetensors").read_text() == "content"
    with pytest.raises(HanseError, match="copied, moved or restored"):
        require_place(again)
    assert main(["moved", "--home", str(again), "--reason", "a new disk"]) == 0
    require_place(again)
    assert all(not path.stat().st_mode & 0o077 for path in again.rglob("*") if path.suffix in (".key", ".seed"))


async def test_secrets_of_sums_under_way_are_in_no_archive(home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "north.tar.gz")
    with tarfile.open(tmp_path / "north.tar.gz") as archive:
        names = archive.getnames()
    assert "north/site.json" in names
    assert not [name for name in names if PAIRWISE in name or name.endswith("/lock")]
    assert (home / PAIRWISE / "run" / "key").exists(), "the home keeps them"


async def test_a_home_that_is_worked_with_is_refused_in_words(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sole_owner(home):
        assert (
            main(["backup", "--home", str(home), str(tmp_path / "north.tar.gz")]) == ErrorCode.LOCKED.value.exit_status
        )
    said = capsys.readouterr().err
    assert "its datapod runs, and its files change while they are copied" in said
    assert "stop it, back up, and start it again" in said
    assert files_in(tmp_path) == []


async def test_a_place_where_no_archive_can_be_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(home)
    for file, code in (
        (tmp_path / "there", ErrorCode.CONFLICT), (home / "north.tar.gz", ErrorCode.INVALID_INPUT),
        (tmp_path / "link" / "north.tar.gz", ErrorCode.INVALID_INPUT), (tmp_path / "no" / "x", ErrorCode.INVALID_INPUT),
    ):  # fmt: skip
        with pytest.raises(HanseError) as caught:
            back_up(home, file)
        assert caught.value.code is code, file
    with pytest.raises(HanseError, match="this site has not joined"):
        back_up(tmp_path / "nobody", tmp_path / "north.tar.gz")
    assert (tmp_path / "there").read_text() == "mine"
    assert not (tmp_path / "nobody").exists()


async def test_a_full_disk_leaves_no_half_of_an_archive(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("hanse_datapod.home.backup.sync", full)
    with pytest.raises(HanseError) as caught:
        back_up(home, tmp_path / "north.tar.gz")
    assert caught.value.code is ErrorCode.NO_SPACE
    assert files_in(tmp_path) == []


async def test_what_lies_elsewhere_is_named(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("privacy: {ledger: /srv/ledger}\n")
    (home / "scratch").symlink_to("/srv/scratch")
    assert main(["backup", "--home", str(home), str(tmp_path / "a"), "--policy", str(policy), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["links"] == ["scratch -> /srv/scratch"]
    assert told["outside"] == {"ledger": "/srv/ledger"}
    assert told["bytes"] == (tmp_path / "a").stat().st_size
    assert main(["backup", "--home", str(home), str(tmp_path / "b"), "--policy", str(policy)]) == 0
    said = capsys.readouterr().out
    assert "the ledger in /srv/ledger" in said
    assert "keep it as you keep those" in said
