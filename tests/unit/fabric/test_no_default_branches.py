"""No branch stands for an unknown name: what is not known is an error, in words or for the type checker."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHOWS = "it shows what it is given, whatever a newer hub or somebody's code calls it"
ALLOWED = {
    "libs/hanse/src/hanse/cli/live.py: _hear": SHOWS,
    "libs/hanse/src/hanse/cli/progress.py: _take": SHOWS,
    "libs/hanse/src/hanse/cli/study_progress.py: _take": SHOWS,
    "libs/hanse/src/hanse/cli/study_progress.py: structure_text": SHOWS,
    "libs/hanse/src/hanse/views.py: describe": SHOWS,
    "libs/hanse_site/src/hanse_site/showing.py: schema_lines": SHOWS,
    "services/datapod/src/hanse_datapod/data/load.py: _in_a_line": SHOWS,
    "libs/hanse_fabric/src/hanse_fabric/messages/base.py: _nearest_value": "of pydantic's errors, two name a key",
}  # fmt: skip
"""Functions whose default branch is meant, and why."""


def defaults(code: str) -> Iterator[str]:
    """The functions with a `match` whose last branch takes everything and does not end in an error."""
    for function in ast.walk(ast.parse(code)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (function.name for node in _own(function) if isinstance(node, ast.Match) and _falls(node))


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without the functions that are defined in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own(child)


def _falls(node: ast.Match) -> bool:
    last = node.cases[-1]
    takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
    return takes_all and not _is_error(last.body[-1])


def _is_error(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) == "assert_never"
    return isinstance(statement, ast.Raise)


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ("case _:\n   return 2", True),
        ("case other:\n   pass", True),
        ("case _ if x > 1:\n   return 2", False),
        ("case _:\n   raise ValueError(x)", False),
        ("case unknown:\n   assert_never(unknown)", False),
        ("case 'b' | 'c':\n   return 2", False),
    ],
)
def test_a_branch_for_whatever_comes_is_found(last: str, found: bool) -> None:
    indented = last.replace("\n", "\n  ")
    assert [*defaults(f"def f(x):\n match x:\n  case 'a':\n   return 1\n  {indented}\n")] == ["f"] * found


def test_an_unknown_name_is_an_error_everywhere() -> None:
    sources = [file for room in ("libs", "services") for file in ROOT.glob(f"{room}/*/src/**/*.py")]
    assert len(sources) > 200
    found = {f"{file.relative_to(ROOT)}: {name}" for file in sources for name in defaults(file.read_text())}
    assert found == ALLOWED.keys()
