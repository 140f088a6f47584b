"""The table of docs/privacy.md, who learns what, held against this suite: no promise without its attack, and back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hanse_fabric.messages import HiddenFailure

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "privacy.md").read_text()
HEAD = "| adversary | |"
NO_PROMISE = ("reads ", "open: ", "-")
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    for line in PAGE[PAGE.index(HEAD) :].split("\n\n", 1)[0].splitlines()[2:]
]
NAMED = {
    number: re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", listed)
    for number, listed in re.findall(r"^- \[(\d+)\] ((?:.|\n  )+)", PAGE, re.MULTILINE)
}
"""Tests by the number that cells refer to them with."""


HOSTILE = {path.name for path in Path(__file__).parent.glob("test_hostile_*.py")}
OTHERS = (Path(__file__).name, "test_fuzzed_decoders.py", "test_bus_rights.py", *HOSTILE)
"""Not of this page: this test, the rights of all roles, and sites or site code that do harm instead of learning."""


def attacks() -> set[tuple[str, str]]:
    """The tests of this suite that are attacks: neither controls nor honest rounds, which show that there is a way."""
    found = set()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.name not in OTHERS:
            for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE):
                if not name.startswith(("test_control", "test_an_honest", "test_honest")):
                    found.add((path.relative_to(ROOT).as_posix(), name))
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}, {row[1]}")
def test_each_cell_names_the_attacks_that_hold_it_or_says_that_it_promises_nothing(row: list[str]) -> None:
    assert len(row) == 5, row
    assert row[1] in ("honest", "lying")
    for cell in row[2:]:
        refers = re.findall(r"\[(\d+)\]", cell)
        assert bool(refers) != cell.startswith(NO_PROMISE), cell
        assert set(refers) <= NAMED.keys(), cell


def test_rows_and_numbers_stand_once() -> None:
    numbers = re.findall(r"^- \[(\d+)\] ", PAGE, re.MULTILINE)
    assert numbers == [str(at) for at in range(1, len(numbers) + 1)]
    names = [(row[0], row[1]) for row in ROWS]
    assert len(names) == len(set(names))


def test_the_page_has_the_few_codes_of_failures_that_are_hidden() -> None:
    told = PAGE[PAGE.index("## Failures, and what messages tell") :]
    codes = re.findall(r"^\| `([a-z-]+)` \| (?:refused|failed) \|", told, re.MULTILINE)
    assert codes == [kind.value for kind in HiddenFailure]


def test_the_owner_and_the_hub_that_lies_have_their_rows() -> None:
    kinds = {(row[0].partition(",")[0], row[1]) for row in ROWS}
    assert {("the hub", "lying"), ("the owner", "lying"), ("coordinator and aggregator (the hub)", "honest")} <= kinds


def test_the_page_names_every_attack_of_the_suite_and_no_other() -> None:
    named = {pair for listed in NAMED.values() for pair in listed}
    assert all(NAMED.values())
    assert named == attacks()


def test_every_number_of_the_page_holds_a_cell() -> None:
    cells = " ".join(cell for row in ROWS for cell in row)
    assert {number for number in NAMED if f"[{number}]" in cells} == NAMED.keys()


@pytest.mark.parametrize("file", sorted({file for file, _ in attacks()}))
def test_every_file_of_attacks_has_a_control_that_succeeds(file: str) -> None:
    assert "def test_control" in (ROOT / file).read_text()
