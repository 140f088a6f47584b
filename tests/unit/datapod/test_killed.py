"""Killed between any two durable steps, a datapod resumes: one answer, its bytes once written never change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanse_datapod.home.journal import FILE, TaskJournal
from hanse_datapod.home.outbox import LOG, verify_log
from unit.datapod.lives import live

LIFE = "one_life"
# Syncs of a first life: two of its key, two to begin the log, then sign of life, journal, log. Publications: sign of
# life, update, result.
MOMENTS = [("sync", n) for n in range(3, 8)] + [("before-publish", n) for n in (2, 3)] + [("after-publish", 2)]


@pytest.mark.parametrize(("what", "number"), MOMENTS)
def test_a_datapod_killed_at_any_step_answers_after_its_restart_and_trains_again_only_if_nothing_was_finished(
    tmp_path: Path, what: str, number: int
) -> None:
    home = tmp_path / "site"
    first = live(LIFE, home, what, number)
    assert first.returncode == -9, first.stderr
    journal = home / FILE
    finished = b'"kind":"finished"' in journal.read_bytes() if journal.exists() else False
    trained = len((home / "trained").read_text()) if (home / "trained").exists() else 0
    second, third = live(LIFE, home), live(LIFE, home)
    assert second.returncode == 0, second.stderr
    assert second.stdout == third.stdout
    assert len((home / "trained").read_text()) == trained + (0 if finished else 1)
    assert verify_log(home).broken is None
    left = [json.loads(line)["what"] for line in (home / LOG).read_text().splitlines()]
    assert left.count("result") == left.count("update")


def test_a_journal_line_torn_by_a_crash_is_forgotten(tmp_path: Path) -> None:
    home = tmp_path / "site"
    assert live(LIFE, home).returncode == 0
    content = (home / FILE).read_bytes()
    (home / FILE).write_bytes(content[:-5])
    journal = TaskJournal(home)
    assert journal.finished == ()
    journal.close()
    assert live(LIFE, home).returncode == 0
