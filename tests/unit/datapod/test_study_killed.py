"""Killed with two steps of a study under way: what was finished is sent as it was, what was not is computed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanse_datapod.home.journal import FILE
from hanse_datapod.home.outbox import LOG, verify_log
from unit.datapod.lives import live

LIFE = "study_life"
# The first three syncs are of the start, the first publication is the sign of life.
MOMENTS = [("sync", 7), ("sync", 9), ("after-publish", 4)]


@pytest.mark.parametrize(("what", "number"), MOMENTS)
def test_a_datapod_killed_during_two_steps_gives_each_step_one_answer_whose_bytes_never_change(
    tmp_path: Path, what: str, number: int
) -> None:
    home = tmp_path / "site"
    first = live(LIFE, home, what, number)
    assert first.returncode == -9, first.stderr
    finished = (home / FILE).read_bytes().count(b'"kind":"finished"')
    computed = len((home / "computed").read_text())
    second, third = live(LIFE, home), live(LIFE, home)
    assert second.returncode == 0, second.stderr
    assert second.stdout == third.stdout
    assert len((home / "computed").read_text()) == computed + 2 - finished
    assert verify_log(home).broken is None
    left = [json.loads(line) for line in (home / LOG).read_text().splitlines()]
    for kind in ("masked-update", "tally", "result"):
        assert len({entry["digest"] for entry in left if entry["what"] == kind}) == 2
