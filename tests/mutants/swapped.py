"""Mutants of functions, tried where the tests are loaded: in a fork, whose function has the mutant's code.

To collect a module's tests takes longer than most of them. Here it is done once for all of a module's mutants. What
stands outside of functions holds from the import on, and is tried in a process that imports the mutant
(`copied_tree`); so is what survives here, because a test may have called the true function while it was collected.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import pytest

from mutants.mutations import Mutant

NOTICED, SURVIVED, TO_BE_IMPORTED, FAILS_ANYWAY = b"n", b"s", b"i", b"f"
_PATIENCE_S = 20.0
_COMPUTING_S = 20
"""Of a processor: how long a mutant's tests may take where they only compute, however busy the machine is."""
_PATIENCE_FACTOR = 6
_UNFIT = 33


class SwappedCode:
    """A plug-in of pytest: the session's tests run once for each mutant, each time in a fork.

    It writes one byte for each mutant, in their order, and ends its process: `NOTICED`, `SURVIVED` or
    `TO_BE_IMPORTED`. `FAILS_ANYWAY` alone: the tests fail without a mutation.

    Args:
        mutants: of one module.
        answers: a file descriptor.
    """

    def __init__(self, mutants: Sequence[Mutant], answers: int) -> None:
        self._mutants, self._answers = mutants, answers

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        # What is loaded is not looked through for garbage by each fork, which would copy it.
        gc.collect()
        gc.freeze()
        patience, computing = 900.0, 900
        for mutant in (None, *self._mutants):
            start = time.monotonic()
            process = os.fork()
            if not process:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_CPU, (computing, computing + 1))
                if mutant is not None and not swap(mutant):
                    os._exit(_UNFIT)
                return (yield)
            code = ended(process, patience)
            if mutant is None:
                enough = _PATIENCE_FACTOR * (time.monotonic() - start)
                patience, computing = max(_PATIENCE_S, enough), max(_COMPUTING_S, math.ceil(enough))
                if code != 0:
                    os.write(self._answers, FAILS_ANYWAY)
                    break
                continue
            os.write(self._answers, {0: SURVIVED, _UNFIT: TO_BE_IMPORTED}.get(code, NOTICED))
        os._exit(0)


def ended(process: int, patience: float) -> int:
    """The exit status of a session's first process, after which all of the session are killed; -1: it took longer than
    `patience` seconds."""
    handle = os.pidfd_open(process)
    quick, _, _ = select.select([handle], [], [], patience)
    os.close(handle)
    # Processes that the tests started are of the same session.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) if quick else -1


def swap(mutant: Mutant) -> bool:
    """Give the loaded function that a mutant is in its code; False where there is none, or not one alone."""
    name = function_around(mutant)
    module = sys.modules.get(mutant.module)
    if name is None or module is None:
        return False
    found = list(_functions(vars(module), name.split(".")))
    codes = [code for code in _codes(compile(mutant.source, str(module.__file__), "exec")) if code.co_qualname == name]
    if len(found) != 1 or len(codes) != 1 or found[0].__code__.co_freevars != codes[0].co_freevars:
        return False
    found[0].__code__ = codes[0]
    return True


def function_around(mutant: Mutant) -> str | None:
    """The outermost function that a mutant is in, `Class.method`; None: it is in none."""
    scope: ast.AST = ast.parse(mutant.source)
    parts = mutant.within.split(".") if mutant.within else []
    for index, part in enumerate(parts):
        scopes = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        inner = [node for node in ast.iter_child_nodes(scope) if isinstance(node, scopes) and node.name == part]
        if len(inner) != 1:
            return None
        if not isinstance(inner[0], ast.ClassDef):
            return ".".join(parts[: index + 1])
        scope = inner[0]
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _functions(names: Any, path: Sequence[str]) -> Iterator[FunctionType]:
    """The function at a path of names, whatever it is wrapped in."""
    found = names.get(path[0])
    if len(path) > 1:
        if isinstance(found, type):
            yield from _functions(vars(found), path[1:])
        return
    match found:
        case property():
            found = found.fget
        case functools.cached_property():
            found = found.func
        case classmethod() | staticmethod():
            found = found.__func__
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if isinstance(found, FunctionType):
        yield found
