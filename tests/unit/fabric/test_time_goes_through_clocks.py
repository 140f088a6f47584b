"""What sleeps, waits or reads the time is handed a clock: ruff's banned names, and the few ways that ruff cannot see.

The exceptions are one list, with reasons: those of TID251 in the workspace's `pyproject.toml`. Threads that wait with
seconds, and clients whose sockets do, have a list of their own here: few may, and no clock can move them.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from syntax_trees import nodes

ROOT = Path(__file__).parents[3]
SOMEWHERE = "services/aggregator/src/hanse_aggregator/somewhere.py"
LOOPS = {"get_running_loop", "get_event_loop", "new_event_loop"}
AT_A_HUB = "a request to a real hub over HTTP, before there is a bus; a simulation enrols its sites without it"
PIPELINE = "a team's own thread waits for the datapod beside it; a simulation has no such threads"
LOCKED = "SQLite waits in the file system for another process's lock, which a simulation never holds"
WAITING = {
    "libs/hanse_site/src/hanse_site/joining.py": AT_A_HUB,
    "libs/hanse_site/src/hanse_site/told_ca.py": AT_A_HUB,
    "services/console/src/hanse_console/proxy.py": "a proxy of HTTP in a process of its own, which no simulation has",
    "libs/hanse_fabric/src/hanse_fabric/probe.py": "a program for Kubernetes, which asks a service's port and ends",
    "libs/hanse_genomics/src/hanse_genomics/compare/plink.py": "a program of people runs PLINK on their own machine",
    "services/datapod/src/hanse_datapod/pipeline/engine.py": PIPELINE,
    "services/datapod/src/hanse_datapod/pipeline/in_hand.py": PIPELINE,
    "services/datapod/src/hanse_datapod/home/database.py": LOCKED,
    "services/compensator/src/hanse_compensator/own_memory.py": LOCKED,
    "services/compensator/src/hanse_compensator/works.py": LOCKED,
}
"""Files in which a thread, or a socket, waits with seconds, and why."""
IN_PLACE = ("wait", "result")
"""Methods that block a thread, whose first argument is seconds."""
BY_NAME = (
    *IN_PLACE, "exception", "get", "put", "join", "acquire", "communicate", "run", "check_call", "check_output",
    "create_connection", "urlopen",
)  # fmt: skip
"""Those, and others, whose `timeout=` is seconds."""
OF_MODULES = {"sqlite3.connect": "timeout", "aiohttp.ClientTimeout": "", "ClientTimeout": "", "select.select": ""}
"""Calls that wait, with the argument that says how long; empty: always."""
WAITS_OF_ASYNCIO = {"wait", "as_completed"}
LAST_WORDS = {*BY_NAME, *(name.rpartition(".")[2] for name in OF_MODULES)}


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


def unseen_by_ruff(within: Sequence[ast.AST]) -> list[int]:
    """Lines that ask an event loop for the time or a timer, or wait with a timeout of asyncio's."""
    assigned = [node for node in within if isinstance(node, ast.Assign) and _is_loop(node.value, set())]
    named = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    found = []
    for node in within:
        if isinstance(node, ast.Attribute) and (
            node.attr in ("call_later", "call_at") or (node.attr == "time" and _is_loop(node.value, named))
        ):
            found.append(node.lineno)
        if isinstance(node, ast.Call) and _last_word(node.func) in WAITS_OF_ASYNCIO:
            asked = ast.unparse(node.func) in ("asyncio.wait", "asyncio.as_completed", "wait")
            found += [node.lineno for keyword in node.keywords if asked and keyword.arg == "timeout"]
    return sorted(found)


def waits_of_threads(within: Sequence[ast.AST]) -> list[int]:
    """Lines in which a thread, or a socket, waits with seconds of the machine's."""
    return sorted(node.lineno for node in within if isinstance(node, ast.Call) and _waits(node))


def _waits(call: ast.Call) -> bool:
    if _last_word(call.func) not in LAST_WORDS:
        return False
    name = ast.unparse(call.func)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in OF_MODULES:
        return OF_MODULES[name] in ("", *given)
    method = name.rpartition(".")[2]
    if name == "asyncio.wait" or "." not in name or method not in BY_NAME:
        return False
    first = call.args[0] if call.args and method in IN_PLACE else None
    seconds = given.get("timeout", first)
    return seconds is not None and not (isinstance(seconds, ast.Constant) and seconds.value is None)


def _last_word(name: ast.expr) -> str:
    """Of a dotted name; what else is called has none that is looked for."""
    return name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""


def _is_loop(node: ast.expr, named: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in named
    return isinstance(node, ast.Call) and _last_word(node.func) in LOOPS


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
    assert unseen_by_ruff([*nodes(ast.parse(code))]) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("ready = threading.Event()\nready.wait(60)\n", [2]),
        ("ready.wait(timeout=left)\n", [1]),
        ("self._ready.wait(_READY_S)\n", [1]),
        ("tasks.get(timeout=1)\n", [1]),
        ("tasks.put(one, timeout=1)\n", [1]),
        ("answer.result(max(0.0, left))\n", [1]),
        ("thread.join(timeout=5)\n", [1]),
        ("lock.acquire(timeout=5)\n", [1]),
        ("process.communicate(timeout=5)\n", [1]),
        ("limit = aiohttp.ClientTimeout(total=5)\n", [1]),
        ("limit = ClientTimeout(5)\n", [1]),
        ("subprocess.run(argv, timeout=5)\n", [1]),
        ("socket.create_connection(place, timeout=5)\n", [1]),
        ("sqlite3.connect(path, timeout=5)\n", [1]),
        ("select.select([pipe], [], [], 5)\n", [1]),
        ("ready.wait()\nready.wait(timeout=None)\nanswer.result()\nlock.acquire()\nthread.join()\n", []),
        ("found.get(name, 5)\n','.join(names)\nlog.exception('it fails')\nasyncio.wait({work})\n", []),
        ("await bus.request(subject, data, timeout=5)\n", []),
    ],
)
def test_threads_and_sockets_that_wait_with_seconds_are_found(code: str, lines: list[int]) -> None:
    assert waits_of_threads([*nodes(ast.parse(code))]) == lines


class Found(NamedTuple):
    """Lines of a file."""

    unseen: list[int]
    waits: list[int]


@pytest.fixture(scope="module")
def sources() -> dict[str, Found]:
    """What is found in all sources that are held to clocks, by file."""
    apart = excepted()
    files = [file for room in ("libs", "services") for file in ROOT.glob(f"{room}/*/src/**/*.py") if file not in apart]
    assert len(files) > 200
    trees = ((str(file.relative_to(ROOT)), [*nodes(ast.parse(file.read_text()))]) for file in files)
    return {name: Found(unseen_by_ruff(within), waits_of_threads(within)) for name, within in trees}


def test_no_source_asks_an_event_loop_for_time(sources: dict[str, Found]) -> None:
    assert {name: found.unseen for name, found in sources.items() if found.unseen} == {}


def test_threads_and_sockets_wait_with_seconds_where_a_reason_is_given_and_nowhere_else(
    sources: dict[str, Found],
) -> None:
    assert {name for name, found in sources.items() if found.waits} == WAITING.keys()


def test_exceptions_are_made_in_the_list_alone() -> None:
    marked = [file for room in ("libs", "services") for file in ROOT.glob(f"{room}/*/src/**/*.py")
              if "noqa: TID251" in file.read_text()]  # fmt: skip
    assert marked == []
