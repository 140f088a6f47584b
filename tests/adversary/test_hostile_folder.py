"""A folder that somebody else made, such as a clone: it names a hub, and wants the user's key.

`hanse.connect()` and the command line find the hub of the working folder. The folder of the attacker names his own
address, which is the scripted server here; what arrives there is what he learns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hanse
from hanse.cli.app import build
from hanse.embedded.state import StateFolder
from hanse_fabric.durable import try_lock, write_durably
from hanse_fabric.errors import HanseError
from hanse_site.identity import SiteRecord
from unit.hanse.scripted_hub import ScriptedHub

MINE = "hanse_" + "a" * 12 + "_" + "m" * 43
"""The user's key for a hub that has nothing to do with this folder."""

HIS = "hanse_" + "b" * 12 + "_" + "h" * 43
FOLDER = Path(".hanse/hub")
Plant = Callable[[Path, str], None]


@pytest.fixture
def attacker() -> Iterator[ScriptedHub]:
    with ScriptedHub() as hub:
        hub.answer("GET", "/v1/hub", (200, {"name": "hub", "version": hanse.__version__}))
        hub.answer("GET", "/v1/projects", (200, {"projects": []}))
        yield hub


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Works in the folder that he got, has his key in the environment, and a hub of his own that runs elsewhere."""
    for name in ("HANSE_URL", "HANSE_CA", "HANSE_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HANSE_API_KEY", MINE)
    got = tmp_path / "got"
    got.mkdir()
    monkeypatch.chdir(got)
    return got


def plant(state: Path, url: str) -> None:
    """What the attacker knows of the form of such a folder, with modes that an archive keeps."""
    state.mkdir(parents=True, mode=0o700)
    for name, text in {
        "address.json": json.dumps({"url": url, "ca": None}),
        "ports.json": json.dumps({"http": int(url.rpartition(":")[2]), "bus": 1, "store": 2}),
        "operator.key": HIS + "\n",
        "lock": str(os.getpid()),
    }.items():
        (state / name).write_text(text)
        (state / name).chmod(0o600)


def by_ports_alone(state: Path, url: str) -> None:
    plant(state, url)
    (state / "address.json").unlink()


def without_a_key(state: Path, url: str) -> None:
    plant(state, url)
    (state / "operator.key").unlink()


def with_the_key_of_another_hub(state: Path, url: str) -> None:
    """Git and archives keep symbolic links."""
    plant(state, url)
    (state / "operator.key").unlink()
    (state / "operator.key").symlink_to("../../../mine/hub/operator.key")


def with_the_lock_of_another_hub(state: Path, url: str) -> None:
    with_the_key_of_another_hub(state, url)
    (state / "lock").unlink()
    (state / "lock").symlink_to("../../../mine/hub/lock")


def with_a_second_name_of_that_lock(state: Path, url: str) -> None:
    plant(state, url)
    (state / "lock").unlink()
    (state / "lock").hardlink_to(state.absolute().parents[2] / "mine/hub/lock")


PLANTED: list[Plant] = [
    plant, by_ports_alone, without_a_key, with_the_key_of_another_hub, with_the_lock_of_another_hub,
    with_a_second_name_of_that_lock,
]  # fmt: skip


def use_it(*more: list[str]) -> None:
    """The ways by which somebody reaches the hub of his folder; each may refuse."""

    async def listed() -> None:
        await hanse.aconnect().info()

    def typed(words: list[str]) -> Callable[[], object]:
        return lambda: build()(words, standalone_mode=False)

    ways = [
        lambda: hanse.connect().info(),
        lambda: asyncio.run(listed()),
        typed(["project", "list"]),
        typed(["doctor"]),
    ]
    for way in (*ways, *(typed(words) for words in more)):
        with contextlib.suppress(HanseError):
            way()


@pytest.fixture
def own_hub(user: Path) -> Iterator[StateFolder]:
    """The user's own, which runs; its key is his secret, too."""
    state = StateFolder(user.parent / "mine" / "hub")
    with state.locked():
        write_durably(state.key_file, MINE + "\n")
        yield state


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.__name__)
@pytest.mark.usefixtures("own_hub")
def test_a_folder_that_came_from_somebody_gets_no_word_and_no_key(attacker: ScriptedHub, planted: Plant) -> None:
    planted(FOLDER, attacker.url)
    use_it()
    assert attacker.seen == []


@pytest.mark.usefixtures("own_hub")
def test_a_cloned_folder_gets_no_word_and_no_key(
    attacker: ScriptedHub, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_the_lock_of_another_hub(user.parent / "his" / FOLDER, attacker.url)
    git = ("git", "-c", "user.name=he", "-c", "user.email=he@example.org", "-C", str(user.parent / "his"))
    for words in (("init", "-q"), ("add", "-f", "."), ("commit", "-q", "-m", "a fine example")):
        subprocess.run((*git, *words), check=True)
    subprocess.run(("git", "clone", "-q", str(user.parent / "his"), str(user.parent / "clone")), check=True)
    monkeypatch.chdir(user.parent / "clone")
    use_it()
    assert attacker.seen == []
    with pytest.raises(HanseError, match=r"operator\.key: others can"), StateFolder(FOLDER).locked():
        raise AssertionError("a hub began with keys that somebody else has")


@pytest.mark.control(
    "test_a_folder_that_came_from_somebody_gets_no_word_and_no_key", "test_a_cloned_folder_gets_no_word_and_no_key"
)
@pytest.mark.usefixtures("own_hub")
def test_control_where_nobody_looks_whether_a_hub_holds_the_folder_the_link_tells_a_key(
    attacker: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_the_key_of_another_hub(FOLDER, attacker.url)
    monkeypatch.setattr(StateFolder, "is_held", lambda _: True)
    monkeypatch.setattr(StateFolder, "check_own", lambda _: None)
    use_it()
    assert {one.headers["Authorization"] for one in attacker.seen} == {f"Bearer {MINE}"}


def test_a_hub_that_runs_in_the_folder_gets_the_key_of_the_folder_and_not_that_of_the_environment(
    attacker: ScriptedHub, monkeypatch: pytest.MonkeyPatch, user: Path
) -> None:
    state = StateFolder(FOLDER)
    (user / "mine.key").write_text(MINE)
    monkeypatch.setenv("HANSE_API_KEY_FILE", "mine.key")
    with state.locked():
        state.ports(int(attacker.url.rpartition(":")[2]))
        write_durably(state.key_file, HIS)
        use_it(["hub", "test", "--timeout", "1"])
    assert {one.headers["Authorization"] for one in attacker.seen} == {f"Bearer {HIS}"}
    assert len(attacker.seen) >= 5, "the hub of the folder is found by all of them"


@pytest.mark.control("test_a_hub_that_runs_in_the_folder_gets_the_key_of_the_folder_and_not_that_of_the_environment")
def test_control_a_key_of_the_environment_goes_to_the_address_of_the_environment(
    attacker: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_URL", attacker.url)
    use_it()
    assert {one.headers["Authorization"] for one in attacker.seen} == {f"Bearer {MINE}"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
@pytest.mark.parametrize(("owner", "mode"), [(12345, 0o700), (0, 0o770), (0, 0o707)])
def test_a_folder_of_another_user_or_that_others_change_is_refused_though_a_hub_holds_it(
    attacker: ScriptedHub, owner: int, mode: int
) -> None:
    state = StateFolder(FOLDER)
    with state.locked():
        state.ports(int(attacker.url.rpartition(":")[2]))
        os.chown(FOLDER, owner, owner)
        FOLDER.chmod(mode)
        with pytest.raises(HanseError) as caught:
            hanse.connect()
        assert str(FOLDER) in caught.value.message
        use_it()
    assert attacker.seen == []
    with pytest.raises(HanseError, match=str(FOLDER)), StateFolder(FOLDER).locked():
        raise AssertionError("a hub began in a folder that others change")


@pytest.mark.control("test_a_folder_of_another_user_or_that_others_change_is_refused_though_a_hub_holds_it")
def test_control_where_nobody_looks_whose_the_folder_is_its_hub_is_used(
    attacker: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateFolder(FOLDER)
    monkeypatch.setattr(StateFolder, "check_own", lambda _: None)
    with state.locked():
        state.ports(int(attacker.url.rpartition(":")[2]))
        FOLDER.chmod(0o777)
        use_it()
    assert attacker.seen


OPEN_FILES = [("lock", 0o644), ("lock", 0o640), ("address.json", 0o666), ("ports.json", 0o620)]


@contextlib.contextmanager
def held_by_the_attacker(url: str, name: str, mode: int) -> Iterator[None]:
    """An archive keeps modes. Its author has an account on this machine, and holds the lock by a descriptor that only
    reads; to a file that he can write to he writes his address while a hub of the user holds the lock."""
    plant(FOLDER, url)
    (FOLDER / name).chmod(mode)
    descriptor = os.open(FOLDER / "lock", os.O_RDONLY)
    try:
        assert try_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(("name", "mode"), OPEN_FILES)
def test_a_folder_whose_lock_or_address_others_have_a_hand_in_gets_no_word(
    attacker: ScriptedHub, name: str, mode: int
) -> None:
    with held_by_the_attacker(attacker.url, name, mode):
        use_it()
        with pytest.raises(HanseError, match=rf"{name}: it is no file of yours that nobody else can"):
            hanse.connect()
    assert attacker.seen == []
    with pytest.raises(HanseError, match=name), StateFolder(FOLDER).locked():
        raise AssertionError("a hub began on files that others have a hand in")


@pytest.mark.control("test_a_folder_whose_lock_or_address_others_have_a_hand_in_gets_no_word")
def test_control_where_nobody_looks_at_the_modes_of_these_files_the_attacker_is_the_hub(
    attacker: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateFolder, "_check_files", lambda _: None)
    with held_by_the_attacker(attacker.url, "lock", 0o644):
        use_it()
    assert attacker.seen


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", ["lock", "address.json", "ports.json", "operator.key"])
@pytest.mark.no_attack("the same files, of another user")
def test_files_of_another_user_in_the_users_own_folder_are_refused(attacker: ScriptedHub, name: str) -> None:
    with held_by_the_attacker(attacker.url, name, 0o600):
        os.chown(FOLDER / name, 12345, 12345)
        with pytest.raises(HanseError, match=name):
            hanse.connect()


@pytest.mark.control_inside
def test_a_site_s_folder_that_came_from_somebody_gets_the_key_that_is_in_it(attacker: ScriptedHub) -> None:
    """`hanse doctor --home` asks the hub that the folder names."""
    record = {
        "schema": SiteRecord.schema_id, "hub": attacker.url, "hub_name": "hub", "project": "triage",
        "participant": "north", "bus_url": "nats://127.0.0.1:1", "api_key": "", "token_id": "a",
        "data_schema": {"kind": "open"}, "joined_at": "2026-01-01T12:00:00Z",
    }  # fmt: skip
    Path("site").mkdir()

    def looked_at(*more: str) -> set[str | None]:
        with contextlib.suppress(HanseError):
            build()(["doctor", "--home", "site", *more], standalone_mode=False)
        return {one.headers.get("Authorization") for one in attacker.seen}

    for key in ("", HIS):
        Path("site/site.json").write_text(json.dumps(record | {"api_key": key}))
        assert looked_at() <= {None, f"Bearer {HIS}"}
    assert f"Bearer {MINE}" in looked_at("--api-key", MINE), "what somebody types for it goes there"
