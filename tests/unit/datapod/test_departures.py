"""Pages of the log of what left: nothing is missing between them, what is searched is found, and a change is told."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hanse_datapod.home.departures import Departures
from hanse_datapod.home.outbox import LOG, Leaving, Outbox
from hanse_datapod.home.shapes import shape_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.file import encode_tensors, layout_like


@pytest.fixture
def home(tmp_path: Path) -> Path:
    outbox = Outbox(tmp_path)
    for n in range(1, 26):
        outbox.append(
            Leaving("presence", "hub", 10), Leaving("update", f"models/{n}", n, f"{n:064x}", task=f"Lauf/{n}")
        )
    outbox.close()
    return tmp_path


def test_pages_are_the_whole_log_newest_first_while_it_grows(home: Path) -> None:
    departures = Departures(home)
    page = departures.page(most=7)
    seen = list(page.entries)
    outbox = Outbox(home)
    outbox.append(Leaving("result", "later", 1))
    outbox.close()
    while page.before is not None:
        page = departures.page(before=page.before, most=7)
        seen += page.entries
    assert [entry["sequence"] for entry in seen] == list(range(50, 0, -1))
    assert departures.page(most=1).entries[0]["to"] == "later"
    assert "hash" not in seen[0]


def test_what_is_searched_is_found_in_any_letters_and_kinds_are_left_out(home: Path) -> None:
    outbox = Outbox(home)
    outbox.append(Leaving("paused", "Umzug der Station, größer", 0), Leaving("update", 'models/"x"', 1, masked=True))
    outbox.close()
    departures = Departures(home)
    found = {
        words: [entry["to"] for entry in departures.page(search=words).entries]
        for words in ("lauf/7", "UMZUG", "GRÖSSER", "größer", "sequence", 'models/"x"', f"{9:064x}")
    }
    assert found["lauf/7"] == ["models/7"]
    assert found["UMZUG"] == found["größer"] == ["Umzug der Station, größer"]
    assert found["GRÖSSER"] == found["UMZUG"]
    assert found["sequence"] == [], "names of fields are not searched"
    assert found['models/"x"'] == ['models/"x"']
    assert found[f"{9:064x}"] == ["models/9"]
    kinds = {entry["what"] for entry in departures.page(without={"presence"}, most=200).entries}
    assert kinds == {"update", "paused"}


def test_a_log_that_was_changed_cut_or_replaced_is_told_and_not_shown(home: Path) -> None:
    departures = Departures(home)
    assert departures.page().entries
    log = home / LOG
    whole = log.read_bytes()
    cut = whole[: whole.rfind(b"\n", 0, -1) + 1]
    changed = re.sub(rb'"size":25', b'"size":26', whole)
    for bad in (cut, changed, b"", whole + b"{}\n"):
        log.unlink()  # another file, as who changes one writes it
        log.write_bytes(bad)
        with pytest.raises(HanseError, match="outbox log") as told:
            departures.page()
        assert told.value.code is ErrorCode.TAMPERED
    log.write_bytes(whole)
    assert departures.page().entries
    (home / "outbox.head").unlink()
    with pytest.raises(HanseError, match=r"outbox\.head is missing"):
        departures.page()


def test_entries_of_release_0_1_0_have_no_more_fields_than_they_had(home: Path) -> None:
    entry = Departures(home).page(search="presence", most=1).entries[0]
    assert set(entry) == {"what", "to", "size", "digest", "sequence", "time"}


def test_a_shape_names_arrays_and_counts_numbers(tmp_path: Path) -> None:
    arrays = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(3, np.float32)}
    data = encode_tensors(layout_like(arrays), arrays)
    assert shape_of(data) == "2 arrays, 9 numbers: bias 3, weight 2×3"
    file = tmp_path / "update"
    file.write_bytes(data)
    assert shape_of(file) == shape_of(data)
    for other in (b"", b"short", b"\xff" * 64, data[:20], tmp_path / "none"):
        assert shape_of(other) is None
