"""The page of words in docs/contributor.md: each word has one row, and the names that it gives are in the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs/contributor.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## Words")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| word")
]


def test_each_word_stands_once() -> None:
    words = [row[0] for row in ROWS]
    assert sorted(set(words)) == sorted(words)
    assert {"site", "participant", "member", "cohort", "leaf", "block", "piece", "span", "job", "strategy"} <= set(
        words
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_names_that_a_word_has_in_code_are_there(row: list[str]) -> None:
    names = re.findall(r"`(hanse[\w.]+)`", row[2])
    assert names
    for name in names:
        found = resolve(name)
        for field in re.findall(r"\(`(\w+)`\)", row[2]):
            assert field in found.model_fields  # type: ignore[attr-defined]


def resolve(name: str) -> object:
    """A module, or what a module has by the last part of the name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)
