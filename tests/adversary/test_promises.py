"""The table of docs/privacy.md, who learns what, held against this suite: no promise without its attack, and back."""

from __future__ import annotations

import ast
import re
from functools import cache
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


SUITE = [path for path in sorted(Path(__file__).parent.glob("test_*.py")) if path.name != Path(__file__).name]
HARM = ("test_hostile_", "test_fuzzed_decoders", "test_bus_rights")
"""What does harm instead of learning is not of this page: sites and site code, strangers, broken messages."""

FILES = [path for path in SUITE if not path.name.startswith(HARM)]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def all_tests(path: Path) -> list[Function]:
    """The tests of a file, in their order."""
    body = ast.parse(path.read_text()).body
    return [each for each in body if isinstance(each, Function) and each.name.startswith("test_")]


def marks_of(test: Function) -> dict[str, list[str]]:
    """What a test is marked as, of the marks of this folder, with what these say."""
    found = {}
    for each in test.decorator_list:
        mark, said = (each.func, each.args) if isinstance(each, ast.Call) else (each, [])
        if isinstance(mark, ast.Attribute) and mark.attr in ("control", "control_inside", "no_attack"):
            found[mark.attr] = [str(ast.literal_eval(value)) for value in said]
    return found


def is_control(name: str) -> bool:
    return name.startswith("test_control")


@cache
def attacks_of(path: Path) -> frozenset[str]:
    """The tests of a file that are attacks: neither controls nor honest rounds, which show that there is a way."""
    return frozenset(
        test.name
        for test in all_tests(path)
        if not is_control(test.name)
        and not test.name.startswith(("test_an_honest", "test_honest"))
        and "no_attack" not in marks_of(test)
    )


def attacks() -> set[tuple[str, str]]:
    """Those of the page, by file and name."""
    return {(path.relative_to(ROOT).as_posix(), name) for path in FILES for name in attacks_of(path)}


def no_attacks() -> set[tuple[str, str]]:
    """What says of itself that it is none, by file and name."""
    tests = [(path, test) for path in FILES for test in all_tests(path)]
    return {(path.relative_to(ROOT).as_posix(), test.name) for path, test in tests if "no_attack" in marks_of(test)}


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
    assert attacks() <= named
    assert named <= attacks() | no_attacks()


def test_every_number_of_the_page_holds_a_cell() -> None:
    cells = " ".join(cell for row in ROWS for cell in row)
    assert {number for number in NAMED if f"[{number}]" in cells} == NAMED.keys()


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.name)
def test_every_attack_has_a_control_that_names_it(path: Path) -> None:
    tests = {test.name: marks_of(test) for test in all_tests(path)}
    controls = {name: marks["control"] for name, marks in tests.items() if "control" in marks}
    assert set(controls) == {name for name in tests if is_control(name)}, "controls are named so, and marked"
    assert all(controls.values()), "a control is of some attack"
    shown = {name for names in controls.values() for name in names}
    attacked = attacks_of(path)
    assert shown <= attacked, "what controls name are attacks of the file"
    inside = {name for name, marks in tests.items() if "control_inside" in marks}
    assert inside <= attacked
    assert not inside & shown, "one control is enough"
    assert attacked <= inside | shown, f"attacks without a control: {sorted(attacked - inside - shown)}"
    assert all(marks["no_attack"] for marks in tests.values() if "no_attack" in marks), "why is said"


def test_a_test_without_its_control_is_found(tmp_path: Path) -> None:
    path = tmp_path / "test_new.py"
    path.write_text(
        "import pytest\n"
        "async def test_one(): ...\n"
        "@pytest.mark.control('test_one', 'test_two')\n"
        "def test_control_of_one(): ...\n"
        "@pytest.mark.control_inside\n"
        "def test_three(): ...\n"
        "@pytest.mark.no_attack('honest')\n"
        "def test_four(): ...\n"
    )
    assert {test.name: marks_of(test) for test in all_tests(path)} == {
        "test_one": {}, "test_control_of_one": {"control": ["test_one", "test_two"]},
        "test_three": {"control_inside": []}, "test_four": {"no_attack": ["honest"]},
    }  # fmt: skip
