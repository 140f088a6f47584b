"""A home that is given a memory to share brings along what it has answered, and stops where that is lost."""

import shutil
import subprocess
import sys
from contextlib import closing

import pytest

from hanse_datapod.cli import main
from hanse_datapod.home.database import Database
from hanse_datapod.home.height import FILE as HEIGHT
from hanse_datapod.home.height import Height
from hanse_datapod.home.one_memory import memory_of
from hanse_datapod.home.tags import Tags
from hanse_datapod.home.works import FILE, Works
from hanse_datapod.process.service import bring_answers
from hanse_datapod.worker.port import DataState
from hanse_fabric.durable import sole_owner
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


def beside_an_older_copy(home, given, older):
    """The memory of a home that has answered since it was copied."""
    memory = memory_of(home, given)
    answered(home, memory)
    copied(memory, older)
    answered(home, memory, "s2", b"x" * 32)
    return memory


@pytest.mark.parametrize("shared", [False, True])
def test_a_home_stops_where_its_memory_is_an_older_copy_until_its_administrator_says_why(home, tmp_path, shared):
    given = tmp_path / "memory" if shared else None
    memory = beside_an_older_copy(home, given, tmp_path / "older")
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
    memory = beside_an_older_copy(home, None, tmp_path / "older")
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


def test_a_home_that_was_refused_a_memory_still_notices_that_its_own_is_an_older_copy(home, tmp_path):
    memory = beside_an_older_copy(home, None, tmp_path / "older")
    other, given = tmp_path / "other", tmp_path / "memory"
    enrolled(other)
    answer(memory_of(other, given), "s9", b"z" * 32)
    with pytest.raises(HanseError, match=r"lacks what .* has answered"):
        memory_of(home, given)
    laid_back(tmp_path / "older", memory)
    with pytest.raises(HanseError, match="is older than what"):
        memory_of(home, None)


def test_a_datapod_brings_nothing_of_a_home_that_another_process_works_with(home, tmp_path):
    """It goes on answering into its own memory, and what it answers then would be in no other."""
    answered(home, memory_of(home, None))
    memory, beside = tmp_path / "memory", tmp_path / "beside"
    enrolled(beside)
    with sole_owner(home), pytest.raises(HanseError, match="another process works with this folder") as refusal:
        bring_answers([beside, home], memory)
    assert refusal.value.code is ErrorCode.LOCKED
    assert not memory.exists()
    assert (home / HEIGHT).exists()
    answered(home, memory_of(home, None), "s2", b"x" * 32)  # the first process, as if nothing had been
    bring_answers([beside, home, tmp_path / "not yet"], memory)
    for session, work in ("s3", b"w" * 32), ("s4", b"x" * 32):
        assert code(Works(memory).check, asked(session, work=work, project="other")) is ErrorCode.CONFLICT
    assert not (tmp_path / "not yet").exists()


def test_a_datapod_that_is_started_a_second_time_with_a_memory_is_refused_before_it_writes(home, tmp_path):
    memory, policy, data = tmp_path / "memory", tmp_path / "policy.yaml", tmp_path / "data.csv"
    policy.write_text(f"masking:\n  memory: {memory}\n")
    data.write_text("a,b\n1,2\n")
    answered(home, memory_of(home, None))
    command = ("run", "--home", home, "--data", data, "--policy", policy)
    with sole_owner(home):
        argv = [sys.executable, "-m", "hanse_datapod", *map(str, command)]
        done = subprocess.run(argv, timeout=60, check=False, capture_output=True, text=True)
    assert done.returncode == ErrorCode.LOCKED.value.exit_status, done.stderr
    assert not memory.exists()


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
