"""No branch stands for an unknown name: what is not known is an error, in words or for the type checker."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from syntax_trees import children

ROOT = Path(__file__).parents[3]
SHOWS = "it shows what it is given, whatever a newer hub or somebody's code calls it"
ALLOWED = {
    "libs/hanse/src/hanse/card_data.py: _of_column": SHOWS,
    "libs/hanse/src/hanse/card_data.py: data_section": SHOWS,
    "libs/hanse/src/hanse/cli/live.py: _hear": SHOWS,
    "libs/hanse/src/hanse/cli/progress.py: _take": SHOWS,
    "libs/hanse/src/hanse/cli/study_progress.py: _take": SHOWS,
    "libs/hanse/src/hanse/cli/study_progress.py: structure_text": SHOWS,
    "libs/hanse/src/hanse/views.py: describe": SHOWS,
    "libs/hanse_site/src/hanse_site/showing.py: schema_lines": SHOWS,
    "services/datapod/src/hanse_datapod/data/load.py: _in_a_line": SHOWS,
    "libs/hanse_fabric/src/hanse_fabric/messages/explained.py: _nearest_value": "of pydantic's errors, two name a key",
    "libs/hanse_genomics/src/hanse_genomics/files/fam.py: read_fam": "PLINK: every other code is an unknown sex",
    "services/datapod/src/hanse_datapod/worker/foreign/code.py: _failed": "whatever else it says, the code has raised",
    "services/coordinator/src/hanse_coordinator/watching/past.py: take": "events of other kinds are overtaken by later",
}  # fmt: skip
"""Functions whose default branch is meant, and why."""


def defaults(code: str) -> Iterator[str]:
    """The functions in which one name after another is asked for, and one that nobody asked for is no error: by a
    `match`, or by an `if` behind another."""
    for name, own in _functions(ast.parse(code)):
        for node in own:
            if isinstance(node, ast.Match) and _falls(node):
                yield name
            if isinstance(node, ast.IfExp) and _chosen(node) > 1:
                yield name
        named = {ast.unparse(node.args[0]) for node in own if isinstance(node, ast.Call) and _is_never(node)}
        for block in _blocks(own):
            for at, first in enumerate(block):
                subject = _subject(first.test) if isinstance(first, ast.If) else None
                if subject is None or subject in named:
                    continue
                branches, rest = _chain(block[at:], subject)
                if branches > 1 and not _refuses(rest, subject):
                    yield name


def _blocks(nodes: list[ast.AST]) -> Iterator[list[ast.stmt]]:
    for node in nodes:
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            continue
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


def _subject(test: ast.expr) -> str | None:
    """What is compared with names, and first of all of them."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return _subject(test.values[0])
    match test:
        case ast.Compare(left, [ast.Eq() | ast.Is()], [name]) if _is_name(name):
            return ast.unparse(left)
        case ast.Compare(left, [ast.In()], [ast.Tuple(names) | ast.Set(names)]) if all(map(_is_name, names)):
            return ast.unparse(left)
        case _:
            return None


def _is_name(given: ast.expr) -> bool:
    """Whether it is a text, or a member of an enumeration."""
    if isinstance(given, ast.Attribute):
        return given.attr.isupper() and ast.unparse(given.value)[:1].isupper()
    return isinstance(given, ast.Constant) and isinstance(given.value, str) and given.value != ""


def _chain(block: list[ast.stmt], subject: str, *, behind: bool = False) -> tuple[int, list[ast.stmt]]:
    """(how many names have a branch of their own at the beginning of a block, what is done with all others)."""
    first = block[0] if block else None
    if not isinstance(first, ast.If) or _subject(first.test) != subject:
        return 0, block
    leaves = isinstance(first.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
    if not (first.orelse or leaves or behind):
        return 0, block
    after = first.orelse or (block[1:] if leaves else [])
    more, rest = _chain(after, subject, behind=bool(first.orelse))
    own = isinstance(first.test, ast.Compare) and not isinstance(first.body[-1], ast.Raise)
    return own + more, rest


def _chosen(node: ast.expr, subject: str | None = None) -> int:
    """How many names choose a value of their own, one after another."""
    if not isinstance(node, ast.IfExp) or not isinstance(node.test, ast.Compare):
        return 0
    found = _subject(node.test)
    return 0 if found is None or subject not in (None, found) else 1 + _chosen(node.orelse, found)


def _refuses(rest: list[ast.stmt], subject: str) -> bool:
    """Whether it ends what is not known: at once, or after a look at which of the names that are left it is."""
    if not rest:
        return False
    if isinstance(rest[0], ast.If) and subject in ast.unparse(rest[0].test):
        return _is_error(rest[0].body[-1])
    return _is_error(rest[0])


def _functions(tree: ast.Module) -> Iterator[tuple[str, list[ast.AST]]]:
    """The functions with what is in them, but for the functions that are defined in these."""
    found: list[tuple[str, list[ast.AST]]] = []
    left: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while left:
        node, own = left.pop()
        for child in children(node):
            within = own
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                within = []
                found.append((child.name, within))
            within.append(child)
            left.append((child, within))
    yield from found


def _falls(node: ast.Match) -> bool:
    last = node.cases[-1]
    takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
    return takes_all and not _is_error(last.body[-1])


def _is_error(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _is_never(statement.value)
    return isinstance(statement, ast.Raise)


def _is_never(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "assert_never"


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


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if x == 'a':\n  return 1\n if x == 'b':\n  return 2\n return 3", True),
        ("if x == 'a':\n  y = 1\n elif x in ('b', 'c'):\n  y = 2\n else:\n  y = 3", True),
        ("if x == 'a':\n  y = 1\n elif x == 'b':\n  y = 2", True),
        ("if x is Kind.A:\n  return 1\n if x is Kind.B:\n  return 2\n return 3", True),
        ("if x == 'a' and z:\n  return 0\n if x == 'a':\n  return 1\n if x == 'b':\n  return 2\n return 3", True),
        ("return 1 if x == 'a' else 2 if x == 'b' else 3", True),
        ("if x == 'a':\n  return 1\n if x == 'b':\n  return 2\n raise ValueError(x)", False),
        ("if x == 'a':\n  return 1\n if x == 'b':\n  return 2\n if x != 'c':\n  raise ValueError(x)\n return 3", False),
        ("if x == 'a':\n  return 1\n if x == 'b':\n  return 2\n z()\n assert_never(x)", False),
        ("if x == 'a':\n  y = 1\n elif x == 'b':\n  y = 2\n else:\n  assert_never(x)", False),
        ("if x == 'a':\n  raise ValueError\n if x == 'b':\n  raise ValueError\n return 3", False),
        ("if x == 'a':\n  return 1\n return 2", False),
        ("if x == 'a':\n  return 1\n if z == 'b':\n  return 2\n return 3", False),
        ("if x == 1:\n  return 1\n if x == 2:\n  return 2\n return 3", False),
        ("if x == 'a' and z:\n  return 1\n if x == 'b' and z:\n  return 2\n return 3", False),
    ],
)
def test_a_chain_of_names_with_something_for_whatever_comes_is_found(body: str, found: bool) -> None:
    assert {*defaults(f"def f(x, z):\n {body}\n")} == ({"f"} if found else set())


def test_an_unknown_name_is_an_error_everywhere() -> None:
    sources = [file for room in ("libs", "services") for file in ROOT.glob(f"{room}/*/src/**/*.py")]
    assert len(sources) > 200
    found = {f"{file.relative_to(ROOT)}: {name}" for file in sources for name in defaults(file.read_text())}
    assert found == ALLOWED.keys()
