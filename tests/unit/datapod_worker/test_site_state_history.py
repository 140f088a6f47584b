"""Whatever is counted, late, repeated or lost: a round begins from the site's last counted one, or knows it is lost."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_datapod.worker.work.site_state import read_state, write_state

HISTORY = st.lists(st.sampled_from(["counted", "late", "crashed", "away", "lost"]), max_size=12)


@settings(max_examples=50, deadline=None)
@given(HISTORY)
def test_a_round_begins_from_the_last_counted_one_or_knows_that_it_is_lost(history: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "state"
        counted, kept = 0, True
        for number, event in enumerate(history, start=1):
            if event == "away":
                continue
            if event == "lost":
                shutil.rmtree(folder, ignore_errors=True)
                kept = counted == 0
            for _ in range(2 if event == "crashed" else 1):
                begun = read_state(folder, before=number, trained=counted)
                assert begun.lost == (not kept)
                assert begun.round == (counted if kept else 0)
                if begun.round:
                    assert begun.groups["local"]["w"].tolist() == [begun.round]
                write_state(folder, number, {"local": {"w": np.array([number])}}, begun)
                assert read_state(folder, before=number + 1, trained=number).round == number
            assert len(list(folder.iterdir())) <= 2
            if event in ("counted", "crashed", "lost"):
                counted, kept = number, True
