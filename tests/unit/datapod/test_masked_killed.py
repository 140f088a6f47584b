"""Killed between any two durable steps of a masked answer: one session is never answered with two masks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hanse_datapod.home.journal import FILE
from hanse_datapod.home.outbox import LOG, verify_log
from unit.datapod.lives import live

LIFE = "masked_life"
# Of the life's nine syncs two are of its key, three of its start and two of its first bound task; its publications are
# sign of life, update, tally, result.
MOMENTS = [("sync", n) for n in (8, 9)] + [("masked", 1)]
MOMENTS += [("before-publish", n) for n in (2, 3)] + [("after-publish", 3)]


@pytest.mark.parametrize(("what", "number"), MOMENTS)
def test_a_datapod_killed_at_any_step_sends_what_it_had_written_down_and_nothing_else(
    tmp_path: Path, what: str, number: int
) -> None:
    home = tmp_path / "site"
    first = live(LIFE, home, what, number)
    assert first.returncode == -9, first.stderr
    finished = b'"kind":"finished"' in (home / FILE).read_bytes()
    left = _left(home)
    assert finished or not left  # nothing leaves before it is written down
    second, third = live(LIFE, home), live(LIFE, home)
    assert second.returncode == 0, second.stderr
    assert second.stdout == third.stdout
    assert len((home / "trained").read_text()) == (1 if finished else 2)
    assert verify_log(home).broken is None
    for kind in ("masked-update", "tally", "result"):
        assert len({digest for what, digest in _left(home) if what == kind}) == 1
    assert not list((home / "work").iterdir())


def _left(home: Path) -> list[tuple[str, str]]:
    """(what, digest) of all that left, but for the signs of life."""
    entries = [json.loads(line) for line in (home / LOG).read_text().splitlines()]
    return [(e["what"], e["digest"]) for e in entries if e["what"] not in ("presence", "repaired", "progress")]
