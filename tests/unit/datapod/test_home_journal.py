"""The datapod's memory of its tasks: what the disk spoiled is not served, and the file does not grow for ever."""

from __future__ import annotations

import errno
import hashlib
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from hanse_datapod.home.journal import FILE, FinishedTask, TaskJournal, work_of
from hanse_fabric import durable
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import LedgerHead, ObjectRef, Outcome, Task
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_privacy.witness import signed_head
from hanse_site.answering import result_for
from open_files import open_under
from unit.datapod.masked_actors import masked_task
from unit.datapod.site_actors import task


def asked(number: int, **fields: object) -> Task:
    return task(f"r{number}-train", round=number, **fields)


def finished(given: Task, *, update: bytes = b"update") -> FinishedTask:
    return FinishedTask(result_for(given, Outcome.DONE, examples=10), update)


@pytest.fixture
def journal(tmp_path: Path) -> TaskJournal:
    return TaskJournal(tmp_path)


def test_an_answer_is_found_again_after_a_restart(journal: TaskJournal, tmp_path: Path) -> None:
    first, second, third = asked(1), asked(2), asked(3)
    for given in (first, third):
        journal.begin(given)
    for given in (first, second):
        journal.finish(given, finished(given))
    journal.close()
    again = TaskJournal(tmp_path)
    assert again.find(first.id) == finished(first)
    assert (again.finished, again.begun) == ((first.id, second.id), 2)
    assert TaskJournal.counts(tmp_path) == (2, 2)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_home_is_made_with_its_journal(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    TaskJournal(home).close()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_an_answer_is_on_the_disk_when_it_is_finished(
    journal: TaskJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(durable, "sync", lambda _: synced.append((tmp_path / FILE).read_bytes()))
    given = asked(1)
    journal.begin(given)
    assert not synced, "work does not wait for a note that people read"
    journal.finish(given, finished(given))
    assert given.id.encode() in synced[-1]


@pytest.mark.parametrize("at", ["in its check", "in its answer", "at its end"])
def test_an_answer_that_the_disk_spoiled_is_not_served(journal: TaskJournal, tmp_path: Path, at: str) -> None:
    given = asked(1)
    journal.finish(given, finished(given, update=b"\0" * 300))
    content = bytearray((tmp_path / FILE).read_bytes())
    place = {"in its check": 3, "in its answer": content.index(b"AAAA") + 1, "at its end": len(content) - 1}[at]
    content[place] ^= 1
    with (tmp_path / FILE).open("r+b") as file:
        file.write(content)
    assert journal.find(given.id) is None
    journal.close()
    again = TaskJournal(tmp_path)
    assert (again.find(given.id), again.finished) == (None, ())


@pytest.mark.parametrize("torn", [1, 5], ids=["its end alone", "more"])
def test_a_line_torn_by_a_crash_is_cut_off_and_the_lines_before_it_stay(
    journal: TaskJournal, tmp_path: Path, torn: int
) -> None:
    first, second, third = asked(1), asked(2), asked(3)
    path = tmp_path / FILE
    journal.finish(first, finished(first))
    whole = path.read_bytes()
    journal.finish(second, finished(second))
    journal.close()
    path.write_bytes(path.read_bytes()[:-torn])
    assert TaskJournal.counts(tmp_path) == (0, 1)
    again = TaskJournal(tmp_path)
    assert again.finished == (first.id,)
    assert path.read_bytes() == whole
    again.finish(third, finished(third))
    again.close()
    assert TaskJournal(tmp_path).finished == (first.id, third.id)


def test_an_answer_that_is_forgotten_is_not_found(journal: TaskJournal) -> None:
    given = asked(1)
    journal.finish(given, finished(given))
    journal.forget(given.id)
    assert (journal.find(given.id), journal.finished) == (None, ())


def rewritten(folder: Path, tasks: list[Task], *, above: int) -> int:
    """How often the file was rewritten while the tasks were finished."""
    journal, seen = TaskJournal(folder, compact_above=above), list[int]()
    for given in tasks:
        journal.finish(given, finished(given, update=bytes(1000)))
        seen.append((folder / FILE).stat().st_ino)
    journal.close()
    return sum(one != other for one, other in pairwise(seen))


def test_a_journal_of_answers_that_are_still_needed_is_rewritten_only_when_it_has_doubled(tmp_path: Path) -> None:
    tasks = [asked(number) for number in range(1, 101)]
    assert 4 <= rewritten(tmp_path, tasks, above=8_000) <= 6
    assert TaskJournal(tmp_path).finished == tuple(given.id for given in tasks)


def test_expired_answers_are_dropped_but_the_newest_stay(tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    old = [asked(number, issued_at=past, deadline=past) for number in range(1, 101)]
    rewritten(tmp_path, old, above=64 * 1_000)
    kept = TaskJournal(tmp_path).finished
    assert kept == tuple(given.id for given in old[-len(kept) :])
    assert 64 <= len(kept) < 100


def test_how_far_the_ledger_had_come_is_remembered_however_many_answers_follow(tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    charged, *others = [asked(number, issued_at=past, deadline=past) for number in range(1, 201)]
    head = signed_head(3, "a" * 64, project="triage", participant="north", key=SigningKey.create())
    answer = finished(charged)
    journal = TaskJournal(tmp_path)
    assert journal.charged is None
    journal.finish(charged, replace(answer, result=answer.result.model_copy(update={"ledger": head})))
    journal.close()
    assert rewritten(tmp_path, others, above=16_000) > 0
    assert TaskJournal(tmp_path).charged == LedgerHead.model_validate(head.model_dump(mode="json"))
    assert len(TaskJournal(tmp_path).finished) < 200


def test_a_task_that_is_answered_again_is_the_newest_of_those_remembered(journal: TaskJournal, tmp_path: Path) -> None:
    first, second = asked(1), asked(2)
    for given in (first, second, first):
        journal.finish(given, finished(given))
    assert journal.finished == TaskJournal(tmp_path).finished == (second.id, first.id)


def test_the_task_that_was_answered_in_a_masked_session_is_remembered(journal: TaskJournal, tmp_path: Path) -> None:
    given = masked_task()
    assert given.masking is not None
    session = given.masking.session
    answer = finished(given)
    journal.finish(given, FinishedTask(answer.result, answer.update, b"tally", {"control": b"extra"}))
    for each in (journal, TaskJournal(tmp_path)):
        assert each.answered(given.run, session) == (given.id, work_of(given))
        assert each.answered(given.run, "another") is None
        found = each.find(given.id)
        assert found is not None
        assert (found.tally, dict(found.extras), found.large) == (b"tally", {"control": b"extra"}, False)


def test_an_answer_without_a_tally_is_of_no_session(journal: TaskJournal) -> None:
    given = masked_task()
    journal.finish(given, finished(given))
    assert given.masking is not None
    assert journal.answered(given.run, given.masking.session) is None


def test_the_same_work_is_known_by_what_is_asked_whoever_asks_and_wherever_the_model_rests() -> None:
    def at(**fields: object) -> str:
        return work_of(task(**fields))

    model = task().model
    assert model is not None
    stored = ObjectRef(digest=model.digest, size=model.size, leaves=model.leaves, key="models/triage/m")
    later = datetime.now(UTC) + timedelta(hours=9)
    same = {at(), at(id="f" * 32), at(step="r1-train-2"), at(peers=9), at(deadline=later), at(model=stored)}
    assert same == {at()}
    other = ObjectRef(digest="0" * 64, size=model.size, key="models/triage/m")
    changed = [at(model=other), at(model=None), at(seed=8), at(round=2), at(config={}), at(run="b" * 12)]
    assert len({at(), *changed}) == 1 + len(changed)


def test_a_line_that_is_whole_and_no_entry_is_taken_for_a_torn_one(journal: TaskJournal, tmp_path: Path) -> None:
    given = asked(1)
    journal.finish(given, finished(given))
    journal.close()
    text = b"[1,2]"
    with (tmp_path / FILE).open("ab") as file:
        file.write(hashlib.sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n")
    assert TaskJournal.counts(tmp_path) == (0, 1)
    assert TaskJournal(tmp_path).finished == (given.id,)


def test_an_answer_that_could_not_be_written_leaves_the_file_as_it_was(
    journal: TaskJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = asked(1), asked(2)
    journal.finish(first, finished(first))
    before, write_all = (tmp_path / FILE).read_bytes(), durable.write_all

    def half(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_all", half)
        with pytest.raises(HanseError) as caught:
            journal.finish(second, finished(second))
    assert caught.value.code is ErrorCode.NO_SPACE
    assert (tmp_path / FILE).read_bytes() == before
    assert journal.finished == (first.id,)
    journal.finish(second, finished(second))
    assert TaskJournal(tmp_path).finished == (first.id, second.id)


def test_a_closed_journal_has_given_its_file_back(tmp_path: Path) -> None:
    journal = TaskJournal(tmp_path)
    assert open_under(tmp_path)
    journal.close()
    assert not open_under(tmp_path)


def test_a_journal_that_was_rewritten_has_one_file_open(tmp_path: Path) -> None:
    journal = TaskJournal(tmp_path, compact_above=1)
    for given in (asked(1), asked(2)):
        journal.finish(given, finished(given))
    assert open_under(tmp_path) == [str(tmp_path / FILE)]
    journal.close()


def test_a_journal_of_few_answers_is_not_rewritten(journal: TaskJournal, tmp_path: Path) -> None:
    before = (tmp_path / FILE).stat().st_ino
    for given in (asked(1), asked(2)):
        journal.finish(given, finished(given, update=bytes(100_000)))
    assert (tmp_path / FILE).stat().st_ino == before


@pytest.mark.parametrize(
    ("stored", "inline", "large"), [(None, None, False), (b"update", b"update", False), (b"update", None, True)]
)
def test_an_update_is_a_file_where_there_is_one_and_the_journal_does_not_hold_it(
    stored: bytes | None, inline: bytes | None, large: bool
) -> None:
    update = None if stored is None else ref_of_bytes(stored)
    assert FinishedTask(result_for(asked(1), Outcome.DONE, update=update), inline).large is large
