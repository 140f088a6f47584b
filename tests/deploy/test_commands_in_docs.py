"""Commands that operators are told to type exist, in the docs, the runbooks and the charts' notes; so do the pages that
programs name."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from deploy.charts import ROOT
from hanse.cli.app import build
from hanse_datapod.cli import parser

PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "runbooks").glob("*.md")),
    *sorted((ROOT / "charts").glob("*/templates/NOTES.txt")),
    ROOT / "README.md",
]
TYPED = r"(?:(?<=`)|(?<=\$\()|(?<=[;&|] )|^ {4,}){} (?P<words>[a-z][-a-z ]*[A-Z]?)"


@functools.cache
def hanse() -> Any:
    """The command line, which takes a moment to build."""
    return typer.main.get_command(build())


def typed(text: str, program: str) -> list[list[str]]:
    """The words after `program` where it is typed: in backquotes, in indented lines, in substitutions."""
    found = re.finditer(TYPED.replace("{}", re.escape(program), 1).replace("{4,}", "{4,}"), text, re.MULTILINE)
    return [one["words"].split() for one in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_docs_exist(page: Path) -> None:
    text = page.read_text()
    for words in typed(text, "hanse"):
        command = hanse()
        for word in words:
            if not hasattr(command, "commands"):
                break  # an argument
            assert word in command.commands, f"hanse {' '.join(words)}: {command.name} has no {word}"
            command = command.commands[word]
    (commands,) = [one.choices for one in parser()._actions if one.choices]
    for words in typed(text, "python -m hanse_datapod"):
        assert words[0] in commands, f"python -m hanse_datapod {words[0]}"


def test_commands_are_found_where_they_are_typed() -> None:
    text = (
        "`hanse run list P`, $(hanse project invite d s), a hanse of no use\n    hanse doctor\n      hanse model list\n"
    )
    heads = [words[:2] for words in typed(text, "hanse")]
    assert heads == [["run", "list"], ["project", "invite"], ["doctor"], ["model", "list"]]


def test_pages_that_programs_name_exist() -> None:
    sources = [path for folder in ("libs", "services") for path in (ROOT / folder).glob("*/src/**/*.py")]
    named = {page for path in sources for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())}
    assert "docs/site-code.md" in named
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []
