"""A home that was copied or restored stops until its administrator says why."""

import json
import os
import shutil

import pytest

from hanse_datapod.cli import main
from hanse_datapod.home import place
from hanse_datapod.home.folders import PAIRWISE
from hanse_datapod.home.outbox import LOG, Leaving, Outbox
from hanse_datapod.home.place import accept_place, inode, require_place
from hanse_datapod.home.tags import Tags
from hanse_datapod.home.works import FILE
from hanse_fabric.errors import ErrorCode, HanseError
from unit.datapod.site_actors import enrolled


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    enrolled(home)
    require_place(home)
    (home / PAIRWISE / "run").mkdir(parents=True)
    (home / PAIRWISE / "run" / "key").write_bytes(b"secret")
    return home


def stops(home):
    with pytest.raises(HanseError) as caught:
        require_place(home)
    assert caught.value.code is ErrorCode.TAMPERED
    assert not (home / PAIRWISE).exists()


def test_a_home_that_stays_where_it_is_goes_on(home):
    require_place(home)
    assert (home / PAIRWISE / "run" / "key").exists()
    assert not accept_place(home)


def test_a_copy_erases_its_secrets_and_waits_for_the_administrator(home, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    stops(copy)
    stops(copy)
    assert main(["moved", "--home", str(copy), "--reason", "a new disk"]) == 0
    require_place(copy)
    [entry] = [json.loads(line) for line in (copy / LOG).read_text().splitlines()]
    assert (entry["what"], entry["to"]) == ("moved", "a new disk")
    require_place(home)
    assert (home / PAIRWISE / "run" / "key").exists()


def test_a_home_that_was_restored_in_its_old_folder_waits(home, tmp_path):
    """File systems give a removed file's number again, so that the new file may have the old one's."""
    if inode(home / FILE).endswith("none"):
        pytest.skip("this file system keeps no generations of inodes")
    shutil.copytree(home, tmp_path / "backup")
    os.close(place._opened.pop(home / FILE))  # as when its process ends: while a file is open, its number is not free
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "backup", home)
    stops(home)


def worked(home, **said):
    """Have the home's log say that something left."""
    outbox = Outbox(home)
    outbox.append(Leaving("result", "hanse.result", 1, **said))
    outbox.close()


@pytest.mark.parametrize("renewed", [False, True])
def test_a_home_that_has_worked_and_whose_memory_is_gone_waits_for_the_administrator(home, renewed):
    worked(home, task="run/r1-train")
    require_place(home)
    (home / PAIRWISE).mkdir(exist_ok=True)
    for file in home.glob(f"{FILE}*"):
        file.unlink()
    if renewed:
        Tags(home).renew()  # the file is there again, and the place is not in it
    stops(home)
    stops(home)
    assert main(["moved", "--memory", "--home", str(home), "--reason", "the disk broke"]) == 0
    require_place(home)
    assert not accept_place(home)


def test_a_home_that_release_0_1_0_has_worked_with_has_no_memory_and_goes_on(tmp_path):
    home = tmp_path / "older"
    enrolled(home)
    worked(home)
    require_place(home)
    assert not accept_place(home)


def test_a_home_on_another_machine_waits(home, tmp_path, monkeypatch):
    machine = tmp_path / "machine-id"
    machine.write_text("another")
    monkeypatch.setattr(place, "_MACHINE", machine)
    stops(home)


def test_an_administrator_renews_who_may_be_in_sums_with_fixed_members(home):
    before = Tags(home).fixed()
    assert Tags(home).fixed() == before
    assert main(["renew", "--home", str(home), "--reason", "a site has joined"]) == 0
    assert Tags(home).fixed() != before
