"""What a reader has before him: the files of a round of training, and the lines of all source.

`workflow_files` are the files that a reader of one round of training passes through, in whichever folders they are.
Imports of our own modules are followed from `hanse_workflows.averaging` and from the coordinator's adapter of its
verbs, `hanse_coordinator.verbs.durable`, those for types alone and within functions, too. A name that a package only
hands on leads to the module that defines it, and not to its `__init__.py`. The ports of bus and object store and the
reduction engine (which a coordinator reaches by the bus) are counted, and nothing is followed from there.

`source_lines` are the lines of Python files under `libs/*/src` and `services/*/src`, blank ones and comments too.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGINNINGS = ("hanse_workflows.averaging", "hanse_coordinator.verbs.durable")
ENDS = ("hanse_fabric.bus.port", "hanse_fabric.store.port", "hanse_reduction.engine")
FIRST_RELEASE = "21825c2"


def workflow_files() -> list[Path]:
    """The files of one round of training, sorted."""
    modules = _modules()
    for name in (*BEGINNINGS, *ENDS):
        if name not in modules:
            raise KeyError(f"{name}: no such module under libs/*/src or services/*/src")
    seen = set(BEGINNINGS) | set(ENDS)
    left = list(BEGINNINGS)
    while left:
        found = set(_imported(modules, left.pop())) - seen
        seen |= found
        left += sorted(found)
    return sorted(modules[name] for name in seen)


def source_lines() -> int:
    """Of this tree."""
    return sum(_lines(path.read_bytes()) for path in _modules().values())


def source_lines_at(commit: str) -> int | None:
    """Of a commit of this repository; None where its history is not there."""
    command = ["git", "archive", commit, "libs", "services"]
    archived = subprocess.run(command, cwd=ROOT, check=False, capture_output=True)
    if archived.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tree:
        return sum(
            _lines(file.read()) for each in tree
            if each.name.endswith(".py") and each.name.split("/")[2:3] == ["src"] and (file := tree.extractfile(each))
        )  # fmt: skip


def _lines(text: bytes) -> int:
    return len(text.splitlines())


def _modules() -> dict[str, Path]:
    """Every module of our own, by name; a package by its own name."""
    found = {}
    for source in sorted([*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src")]):
        for path in source.rglob("*.py"):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imported(modules: dict[str, Path], name: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(modules[name].read_bytes())):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name in modules)
            case ast.ImportFrom(module=str(module), names=names) if module in modules:
                yield from (_definer(modules, module, each.name) for each in names)


def _definer(modules: dict[str, Path], module: str, name: str) -> str:
    """The module that a name of `module` is read in."""
    if f"{module}.{name}" in modules:
        return f"{module}.{name}"
    for node in ast.parse(modules[module].read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module in modules and modules[module].name == "__init__.py":
            for each in node.names:
                if (each.asname or each.name) == name:
                    return _definer(modules, node.module, each.name)
    return module
