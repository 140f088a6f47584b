"""Every command of ours that the pages, the charts' notes and new projects' READMEs tell to type is taken by the
program's own parser, with its options; the pages exist that programs name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.charts import ROOT
from deploy.pages import NOTES, PAGES, PROJECTS, blocks_of, in_backquotes, indented, name_of
from deploy.typed_commands import commands, complaint

NOT_WHOLE = {
    "python -m hanse_operations secrets --out secrets $": "the chart says the other options: run by test_chart_docs.py",
    "python -m hanse_...": "stands for all services",
}
"""Lines that no parser takes as they stand, each with why they are there."""
PROGRAM = re.compile(r"(sudo|docker|kubectl|\S*hanse|\S*python3?|make|HANSE_\w+=\S+) ")
MISSING = ("Missing", "the following arguments are required", "one of the arguments")
TYPED_IN = [*PAGES, *PROJECTS, *NOTES]


def typed(page: Path) -> list[list[str]]:
    """What is to be typed as it stands there: in blocks of a shell, and in indented lines."""
    shell = [block.text for block in blocks_of(page) if block.language == "sh"]
    return [words for text in (*shell, *indented(page)) for words in commands(text)]


def named(page: Path) -> list[list[str]]:
    """What the text names in backquotes."""
    return [words for text in in_backquotes(page) if PROGRAM.match(text) for words in commands(text)]


def is_name(words: list[str]) -> bool:
    """Whether it names a command and gives it nothing: `hanse run show`."""
    return all(re.fullmatch("[a-z-]*[a-z]", word) for word in words[3 if words[1:2] == ["-m"] else 1 :])


@pytest.mark.parametrize("page", TYPED_IN, ids=name_of)
def test_what_is_to_be_typed_is_taken_by_the_programs(page: Path) -> None:
    lines = {" ".join(words): words for words in typed(page)}
    refused = {line: said for line, words in lines.items() if line not in NOT_WHOLE and (said := complaint(words))}
    assert refused == {}


@pytest.mark.parametrize("page", TYPED_IN, ids=name_of)
def test_what_is_named_is_taken_too_or_is_a_name(page: Path) -> None:
    for words in named(page):
        if " ".join(words) not in NOT_WHOLE and (said := complaint(words)):
            assert is_name(words), (words, said)
            assert said.startswith(MISSING), (words, said)


def test_what_is_excepted_is_there() -> None:
    there = {" ".join(words) for page in TYPED_IN for words in (*typed(page), *named(page))}
    assert NOT_WHOLE.keys() <= there


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hanse up --dir hub", "No such option: --dir"),
        ("hanse run lst P", "run has no command lst"),
        ("hanse run show triage", "Missing argument"),
        ("hanse run export P RUN --to mlflow --model", "requires an argument"),
        ("hanse site status --policy FILE", "required: --home"),
        ("sudo /opt/bin/python -m hanse_datapod budget --home DIR --poliy F", "unrecognized arguments: --poliy"),
        ("python -m hanse_coordinator now", "knows no"),
        ("make chaos SEED=3", "nothing reads SEED"),
        ("make bench-sale", "no target bench-sale"),
        ("make bench-scale ARGS=--particpants", "no option"),
    ],
)
def test_what_a_program_does_not_take_is_found(line: str, said: str) -> None:
    ((words,),) = [commands(f"cd ward && {line} | tail # as before\n")]
    assert said in str(complaint(words))


def test_commands_are_found_where_they_are_typed() -> None:
    text = "X=1 hanse doctor --json; t=$(hanse project invite digits $site | grep o)\n"
    text += 'hanse hub revoke-leaf "$(make lint)"\n'
    assert commands(text) == [
        ["hanse", "doctor", "--json"],
        ["hanse", "project", "invite", "digits", "$site"],
        ["make", "lint"],
        ["hanse", "hub", "revoke-leaf", "$(make lint)"],
    ]
    assert commands("a hanse of no use") == []


def test_where_hanse_s_wheels_come_from_is_said_wherever_they_are_installed() -> None:
    """No package index has them."""
    sources = [path for folder in ("libs", "services") for path in (ROOT / folder).glob("*/src/**/*.py")]
    lines = [line for page in TYPED_IN for line in re.findall("pip install[^`\n]*", page.read_text())]
    lines += [line for path in sources for line in re.findall('["\'](pip install[^"]*)"', path.read_text())]
    ours = [line for line in lines if re.search(r"[ ']hanse\b(?!\.)", line)]
    assert len(ours) > 10
    assert [line for line in ours if "--find-links" not in line] == []


def test_pages_that_programs_name_exist() -> None:
    sources = [path for folder in ("libs", "services") for path in (ROOT / folder).glob("*/src/**/*.py")]
    told = {page for path in sources for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())}
    assert "docs/site-code.md" in told
    assert [page for page in sorted(told) if not (ROOT / page).exists()] == []
