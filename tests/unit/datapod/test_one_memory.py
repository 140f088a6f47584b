"""A home that is given a memory to share brings along what it has answered, and stops where that is lost."""

import shutil
from contextlib import closing

import pytest

from hanse_datapod.cli import main
from hanse_datapod.home.database import Database
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


def test_a_home_that_was_stopped_while_it_brought_its_answers_goes_on(home, tmp_path):
    answer(memory_of(home, None))
    memory = memory_of(home, tmp_path / "memory")
    with closing(Database(home / FILE, "")) as own:
        own.do(lambda ours: ours.execute("UPDATE memory SET state = 'new'"))
    assert memory_of(home, memory) == memory
    assert code(Works(memory).check, asked("s2", project="other")) is ErrorCode.CONFLICT
