"""A home that is given a memory to share brings along what it has answered, and stops where that is lost."""

import shutil
from contextlib import closing

import pytest

from hanse_datapod.cli import main
from hanse_datapod.home.database import Database
from hanse_datapod.home.height import FILE as HEIGHT
from hanse_datapod.home.height import Height
from hanse_datapod.home.one_memory import memory_of
from hanse_datapod.home.tags import Tags
from hanse_datapod.home.works import FILE, Works
from hanse_datapod.worker.port import DataState
from hanse_fabric.errors import ErrorCode, HanseError
from unit.datapod.site_actors import enrolled
from unit.datapod.test_works import ANSWER, among, asked, code


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    enrolled(home)
    return home


def answer(folder, session="s1", work=b"w" * 32, project="triage"):
    Works(folder).claim(
        asked(session, work=work, project=project), ANSWER, DataState("0"), tag=b"t" * 16, among=among(range(1, 13))
    )
    return Tags(folder).fixed()


def test_a_home_brings_what_it_has_answered_to_a_memory_that_is_given_later(home, tmp_path):
    fixed, memory = answer(memory_of(home, None)), tmp_path / "memory"
    for _ in range(2):
        assert memory_of(home, memory) == memory
    assert Tags(memory).fixed() == fixed
    works = Works(memory)
    assert code(works.check, asked("s2", project="other")) is ErrorCode.CONFLICT
    near = asked("s3", work=b"v" * 32)
    few = among(range(1, 4), 3)
    assert code(works.claim, near, ANSWER, DataState("0"), tag=b"t" * 16, among=few) is ErrorCode.CONFLICT
    other = tmp_path / "other"
    enrolled(other)
    assert memory_of(other, memory) == memory  # it has answered nothing yet
    answer(memory, "s4", b"x" * 32)
    memory_of(home, memory)


@pytest.mark.parametrize("lost", ["emptied", "another", "none", "of homes that have answered"])
def test_a_home_stops_where_the_memory_lacks_what_it_has_answered_until_its_administrator_says_why(
    home, tmp_path, lost
):
    answer(memory_of(home, None))
    memory = given = tmp_path / "memory"
    if lost == "of homes that have answered":
        other = tmp_path / "other"
        enrolled(other)
        answer(memory_of(other, memory), "s9", b"x" * 32)
    else:
        memory_of(home, memory)
    if lost == "emptied":
        shutil.rmtree(memory)
    elif lost != "of homes that have answered":
        given = tmp_path / "another" if lost == "another" else None
    for _ in range(2):
        with pytest.raises(HanseError, match=r"lacks what .* has answered") as refusal:
            memory_of(home, given)
        assert refusal.value.code is ErrorCode.TAMPERED
    assert main(["moved", "--memory", "--home", str(home), "--reason", "the disk broke"]) == 0
    for _ in range(2):
        assert memory_of(home, given) == (given or home)


def answered(home, memory, session="s1", work=b"w" * 32):
    """As `answer`, by a datapod of the home."""
    known = Works(memory, reached=Height(home).reached)
    known.claim(asked(session, work=work), ANSWER, DataState("0"), tag=b"t" * 16, among=among(range(1, 13)))
    known._database.close()


def copied(memory, to):
    to.mkdir()
    for file in memory.glob(f"{FILE}*"):
        if file.name != HEIGHT:
            shutil.copy(file, to)


def laid_back(copy, memory):
    """In place, as a backup's program may: the files keep their numbers."""
    for file in memory.glob(f"{FILE}-*"):
        file.unlink()
    for file in copy.iterdir():
        (memory / file.name).write_bytes(file.read_bytes())


@pytest.mark.parametrize("shared", [False, True])
def test_a_home_stops_where_its_memory_is_an_older_copy_until_its_administrator_says_why(home, tmp_path, shared):
    given = tmp_path / "memory" if shared else None
    memory = memory_of(home, given)
    answered(home, memory)
    copied(memory, tmp_path / "older")
    answered(home, memory, "s2", b"x" * 32)
    copied(memory, tmp_path / "newest")
    memory_of(home, given)
    laid_back(tmp_path / "older", memory)
    for _ in range(2):
        with pytest.raises(HanseError, match="is older than what") as refusal:
            memory_of(home, given)
        assert refusal.value.code is ErrorCode.TAMPERED
    laid_back(tmp_path / "newest", memory)
    memory_of(home, given)
    laid_back(tmp_path / "older", memory)
    assert main(["moved", "--memory", "--home", str(home), "--reason", "the disk broke"]) == 0
    for _ in range(2):
        assert memory_of(home, given) == memory
    answered(home, memory, "s3", b"y" * 32)
    memory_of(home, given)


def test_a_home_whose_own_memory_is_an_older_copy_brings_it_to_no_other(home, tmp_path):
    memory = memory_of(home, None)
    answered(home, memory)
    copied(memory, tmp_path / "older")
    answered(home, memory, "s2", b"x" * 32)
    laid_back(tmp_path / "older", memory)
    with pytest.raises(HanseError, match="is older than what"):
        memory_of(home, tmp_path / "memory")


def test_what_a_home_knows_of_its_own_memory_is_not_asked_of_the_one_that_comes_after_it(home, tmp_path):
    for number in range(20):
        answered(home, memory_of(home, None), f"s{number}", number.to_bytes(32, "big"))
    with closing(Database(home / FILE, "")) as own:
        own.do(lambda ours: ours.execute("DELETE FROM answers WHERE id > 2"))  # forgotten: fewer are brought along
    memory = tmp_path / "memory"
    for _ in range(2):
        memory_of(home, memory)
    answered(home, memory, "next", b"n" * 32)
    memory_of(home, memory)


def test_other_homes_that_share_a_memory_may_bring_it_further(home, tmp_path):
    memory = memory_of(home, tmp_path / "memory")
    answered(home, memory)
    other = tmp_path / "other"
    enrolled(other)
    answered(other, memory_of(other, memory), "s2", b"x" * 32)
    memory_of(home, memory)
    memory_of(other, memory)


@pytest.mark.parametrize("left", [b"", bytes(20), None])
def test_a_count_that_a_power_cut_took_back_stops_nobody(home, left):
    answered(home, memory_of(home, None))
    (home / HEIGHT).unlink()
    if left is not None:
        (home / HEIGHT).write_bytes(left)
    memory_of(home, None)


def test_a_home_that_was_stopped_while_it_brought_its_answers_goes_on(home, tmp_path):
    answer(memory_of(home, None))
    memory = memory_of(home, tmp_path / "memory")
    with closing(Database(home / FILE, "")) as own:
        own.do(lambda ours: ours.execute("UPDATE memory SET state = 'new'"))
    assert memory_of(home, memory) == memory
    assert code(Works(memory).check, asked("s2", project="other")) is ErrorCode.CONFLICT
