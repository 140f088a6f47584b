"""The databases of a home: what was changed is there for other processes, and after a kill."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hanse_datapod.home.database import Database, one
from hanse_datapod.home.place import inode
from hanse_fabric.errors import HanseError

ROOT = Path(__file__).parents[3]
TABLE = "CREATE TABLE IF NOT EXISTS kept (number INTEGER PRIMARY KEY)"
PROCESS = """
import os, signal, sys
from pathlib import Path
from hanse_datapod.home.database import Database
path, table, dies, *numbers = sys.argv[1:]
database = Database(Path(path), table)
for number in numbers:
    database.do(lambda open_: open_.execute("INSERT INTO kept VALUES (?)", (int(number),)))
if dies == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def elsewhere(path, *numbers, dies=False):
    """Another process keeps numbers, and ends, or is killed."""
    argv = [sys.executable, "-c", PROCESS, path, TABLE, "dies" if dies else "ends", *map(str, numbers)]
    assert subprocess.run(argv, timeout=60, check=False).returncode == (-signal.SIGKILL if dies else 0)


def keep(database, number):
    database.do(lambda open_: open_.execute("INSERT INTO kept VALUES (?)", (number,)))


def kept(database):
    return [row[0] for row in database.do(lambda open_: open_.execute("SELECT number FROM kept ORDER BY 1").fetchall())]


def test_what_a_killed_process_has_changed_is_there(tmp_path):
    elsewhere(tmp_path / "kept", 1, 2, dies=True)
    assert kept(Database(tmp_path / "kept", TABLE)) == [1, 2]


def test_a_process_that_ends_takes_nothing_from_one_that_goes_on(tmp_path):
    """Whoever closes a database last removes what is appended to it. That this process has it open is told by a lock on
    the file, which must not end where the file's number is asked for."""
    path = tmp_path / "kept"
    going_on = Database(path, TABLE)
    keep(going_on, 1)
    assert inode(path) == inode(path)
    elsewhere(path, 2)
    keep(going_on, 3)
    elsewhere(path, 4, dies=True)
    assert kept(going_on) == [1, 2, 3, 4]


def test_a_database_of_an_earlier_release_goes_on(tmp_path):
    path = tmp_path / "kept"
    database = Database(path, TABLE)
    keep(database, 1)
    assert database._connection is not None
    database._connection.execute("PRAGMA journal_mode = DELETE")
    database._connection.close()
    assert list(tmp_path.iterdir()) == [path]
    again = Database(path, TABLE)
    assert kept(again) == [1]
    assert again.do(lambda open_: one(open_, "PRAGMA journal_mode"))[0] == "wal"


def test_tables_that_cannot_be_made_keep_nobody_else_waiting(tmp_path, monkeypatch):
    """They are made in one transaction, as where the disk is full in the middle of it: that must not stay open for as
    long as somebody holds the error."""
    monkeypatch.setattr("hanse_datapod.home.database._WAIT_S", 0.1)
    with pytest.raises(HanseError, match="disk or system failed") as held:
        keep(Database(tmp_path / "kept", f"{TABLE}; CREATE TABLE unfinished"), 1)
    keep(Database(tmp_path / "kept", TABLE), 1)
    assert kept(Database(tmp_path / "kept", TABLE)) == [1]
    assert held.tb is not None


def test_a_change_stays_after_a_power_cut_where_there_is_no_log_to_append_to(tmp_path):
    """There a change is made by removing SQLite's journal, and only EXTRA (3) waits until the folder has it: a journal
    that comes back would take the change back."""
    database = Database(tmp_path / "kept", TABLE)
    assert database.do(lambda open_: one(open_, "PRAGMA synchronous"))[0] == 3


def test_every_database_of_the_platform_waits_for_folders_too():
    """Whoever opens another one says it there, and has a test of it."""
    opened = {
        str(file.relative_to(ROOT)): file.read_text()
        for part in ("libs", "services")
        for file in (ROOT / part).glob("*/src/**/*.py")
        if "sqlite3.connect(" in file.read_text()
    }
    assert sorted(opened) == [
        "services/compensator/src/hanse_compensator/own_memory.py",
        "services/compensator/src/hanse_compensator/works.py",
        "services/datapod/src/hanse_datapod/home/database.py",
    ]
    assert not [file for file, text in opened.items() if "synchronous = FULL" in text or "synchronous = NORMAL" in text]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_its_files_are_readable_by_their_owner_alone(tmp_path, suffix):
    database = Database(tmp_path / "kept", TABLE)
    assert kept(database) == []
    assert (tmp_path / f"kept{suffix}").stat().st_mode & 0o777 == 0o600
