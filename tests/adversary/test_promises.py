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


OTHERWISE: dict[str, dict[str, tuple[str, ...]]] = {
    "an adversary who has more: credentials, keys, or a place that the table gives to somebody else": {
        "test_aggregator.py": ("test_control_with_all_rights_the_same_subjects_are_read",),
        "test_bus_rights.py": ("test_control_a_user_without_permissions_of_his_own_listens_everywhere",),
        "test_compensator.py": ("test_control_with_the_aggregators_rights_too_its_key_reads_every_update",),
        "test_compensators.py": (
            "test_a_hub_with_fewer_than_k_compensators_takes_no_mask_off",
            "test_a_hub_that_calls_compensators_gone_takes_no_mask_off_either",
            "test_each_compensator_remembers_works_for_itself",
            "test_compensators_that_are_seized_after_their_keys_are_destroyed_open_nothing_recorded",
        ),
        "test_store.py": ("test_the_store_lets_each_service_read_and_write_its_own_only",),
        "test_hostile_site.py": (
            "test_control_with_rights_as_wide_as_jetstreams_a_site_reads_events_and_hears_what_others_are_told",
            "test_control_a_record_was_overwritten_while_sites_wrote_to_jetstream",
            "test_control_a_site_made_consumers_that_stay_while_it_followed_its_tasks",
            "test_control_a_site_silenced_another_by_the_id_of_its_task",
        ),
        "test_hostile_store_links.py": ("test_control_by_a_link_of_release_0_1_0_each_of_these_succeeds",),
        "test_hostile_leaf.py": ("test_control_of_its_own_regions_sites_it_carries_everything",),
        "test_hostile_revoked_leaf.py": (
            "test_a_revoked_leaf_is_cut_off_and_cannot_return_and_costs_the_others_nothing",
        ),
    },
    "what is asked for is the same answer without masks, or the same line without TLS: they are the defence": {
        "test_aggregator.py": ("test_control_without_masks_the_aggregator_reads_the_update",),
        "test_network.py": ("test_control_without_tls_the_line_has_the_message",),
    },
    "the test's own stand-in lacks the defence: a member, a site, a server or a process of its making": {
        "test_compensators.py": ("test_control_where_nobody_checks_the_group_whoever_has_its_keys_reads_every_answer",),
        "test_bus_rights.py": ("test_control_a_subject_that_is_granted_is_not_among_the_refused",),
        "test_hostile_folder.py": ("test_a_site_s_folder_that_came_from_somebody_gets_the_key_that_is_in_it",),
        "test_hostile_neighbour.py": (
            "test_control_where_the_socket_is_as_the_user_makes_files_everybody_may_connect",
        ),
        "test_hostile_results.py": ("test_control_a_digest_of_the_same_hub_agrees_with_whatever_it_gives",),
        "test_hostile_site_code.py": (
            "test_control_without_the_sandbox_each_of_these_attacks_succeeds",
            "test_control_an_update_that_is_read_where_the_code_put_it_brings_the_key_out",
            "test_control_what_a_worker_started_outlives_it_where_nothing_keeps_it",
            "test_control_where_the_kernel_holds_nothing_fast_memory_is_had",
            "test_control_what_its_code_started_outlives_the_datapod_where_nothing_keeps_it",
        ),
    },
    "harm, and nothing is learned: the test's own hub does not count it, or counts as hubs did before": {
        "test_hostile_crowd.py": ("test_control_where_nobody_counts_a_site_has_as_many_as_it_likes",),
        "test_hostile_fills.py": ("test_control_where_a_projects_answers_are_not_counted_all_of_them_are_kept",),
        "test_hostile_handshakes.py": ("test_control_where_files_are_not_looked_at_nobody_else_is_let_in",),
        "test_hostile_journals.py": ("test_control_where_open_tasks_are_not_counted_all_of_them_are_there",),
        "test_hostile_lockout.py": (
            "test_control_where_what_a_site_fetches_counts_as_a_change_its_owner_changes_nothing_more",
        ),
        "test_hostile_stranger.py": ("test_control_where_addresses_share_their_places_nobody_signs_in",),
    },
    "terms that do not go so far: without a policy there is nothing else that could refuse": {
        "test_hub_swaps_terms.py": ("test_a_site_without_a_policy_goes_by_what_was_shown_too",),
    },
}
"""Why a control takes the defence away by another way than `monkeypatch`, and which, by file."""


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.name)
def test_each_control_takes_the_defence_away_by_the_test_or_says_how_else(path: Path) -> None:
    controls = {test.name: test for test in all_tests(path) if {"control", "control_inside"} & marks_of(test).keys()}
    otherwise = {name for name, test in controls.items() if not takes(test, "monkeypatch")}
    listed = [name for files in OTHERWISE.values() for name in files.get(path.name, ())]
    assert sorted(listed) == sorted(otherwise)


def takes(test: Function, fixture: str) -> bool:
    return fixture in {each.arg for each in (*test.args.args, *test.args.kwonlyargs)}


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
