"""What sleeps, waits or reads the time is handed a clock: ruff's banned names, and the few ways that ruff cannot see.

The exceptions are one list, with reasons: those of TID251 in the workspace's `pyproject.toml`.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOMEWHERE = "services/aggregator/src/hanse_aggregator/somewhere.py"
LOOPS = {"get_running_loop", "get_event_loop", "new_event_loop"}


def ruff(code: str, name: str) -> list[str]:
    """The rules that `code` breaks as the file `name`."""
    command = [sys.executable, "-m", "ruff", "check", "--output-format", "json", "--stdin-filename", name, "-"]
    told = subprocess.run(command, input=code, cwd=ROOT, capture_output=True, text=True, check=False)
    return [finding["code"] for finding in json.loads(told.stdout)]


def excepted() -> set[Path]:
    ignores = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    patterns = [pattern for pattern, rules in ignores.items() if "TID251" in rules]
    return {file for pattern in patterns for one in _alternatives(pattern) for file in ROOT.glob(one)}


def _alternatives(pattern: str) -> Iterator[str]:
    """`a/{b,c}.py` as a/b.py and a/c.py; a folder with all that is in it."""
    before, brace, rest = pattern.partition("{")
    inside, _, after = rest.partition("}")
    for each in inside.split(",") if brace else [""]:
        yield (before + each + after if brace else pattern).replace("/**", "/**/*.py")


def unseen_by_ruff(code: str) -> list[int]:
    """Lines that ask an event loop for the time or a timer, or wait with a timeout of asyncio's."""
    tree = ast.parse(code)
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_loop(node.value, set())]
    named = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (
            node.attr in ("call_later", "call_at") or (node.attr == "time" and _is_loop(node.value, named))
        ):
            found.append(node.lineno)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.wait", "asyncio.as_completed", "wait"):
            found += [node.lineno for keyword in node.keywords if keyword.arg == "timeout"]
    return sorted(found)


def _is_loop(node: ast.expr, named: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in named
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in LOOPS


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\nasync def wait():\n    await asyncio.sleep(1)\n",
        "import asyncio as aio\nasync def wait():\n    await aio.sleep(1)\n",
        "from asyncio import sleep as nap\nasync def wait():\n    await nap(1)\n",
        "from asyncio import timeout\nlimit = timeout(1)\n",
        "import time\nnow = time.time\n",
        "from time import monotonic\nbegan = monotonic()\n",
        "import datetime as dt\nnow = dt.datetime.now(dt.UTC)\n",
        "from datetime import UTC, datetime as moment\nnow = moment.now(UTC)\n",
    ],
)
def test_ruff_refuses_the_machines_time_by_whatever_name(code: str) -> None:
    assert "TID251" in ruff(code, SOMEWHERE)


def test_ruff_lets_the_clocks_and_what_awaits_no_time_alone() -> None:
    assert "TID251" not in ruff("import asyncio\ndone = asyncio.wait\n", SOMEWHERE)
    assert "TID251" not in ruff("import time\nnow = time.time()\n", "libs/hanse_fabric/src/hanse_fabric/clock.py")


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("now = asyncio.get_running_loop().time\n", [1]),
        ("loop = asyncio.get_running_loop()\nend = loop.time() + 1\n", [2]),
        ("asyncio.get_running_loop().call_later(1, print)\n", [1]),
        ("await asyncio.wait({work}, timeout=1)\n", [1]),
        ("await asyncio.wait({work})\nhalf.time()\nloop = asyncio.get_running_loop()\nloop.create_future()\n", []),
    ],
)
def test_what_ruff_cannot_see_is_found_here(code: str, lines: list[int]) -> None:
    assert unseen_by_ruff(code) == lines


def test_no_source_asks_an_event_loop_for_time() -> None:
    apart = excepted()
    sources = [
        file for room in ("libs", "services") for file in ROOT.glob(f"{room}/*/src/**/*.py") if file not in apart
    ]
    assert len(sources) > 200
    found = {str(file.relative_to(ROOT)): unseen_by_ruff(file.read_text()) for file in sources}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_exceptions_are_made_in_the_list_alone() -> None:
    marked = [file for room in ("libs", "services") for file in ROOT.glob(f"{room}/*/src/**/*.py")
              if "noqa: TID251" in file.read_text()]  # fmt: skip
    assert marked == []
