"""A copy of the tree in which a file may be changed, and runs of its tests.

Loading torch, pytest and the rest takes most of the time of a short run. So it is done once, and each run is forked
from there: it imports the packages of the copy anew, as any other process does.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from mutants.swapped import ended

_SLOW_TO_LOAD = ("torch", "scipy.stats", "pytest", "hypothesis", "aiohttp", "nats", "pydantic", "minio", "httpx")


class Copy:
    """A copy of a working tree, whose packages are imported instead of the installed ones.

    Args:
        tree: what is copied: all that git knows or would add.
        folder: where it comes to lie.

    Raises:
        RuntimeError: a package of Hanse is loaded already, so that each run would have it as it was.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self.root = folder / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=tree, capture_output=True, check=True,
        )  # fmt: skip
        for name in listed.stdout.decode().split("\0"):
            if name and (tree / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, self.root / name)
        self._sources = [str(path) for room in ("libs", "services") for path in sorted(self.root.glob(f"{room}/*/src"))]
        # A mutated file is seen by its content: its size and the second of its change may be the same.
        for path in self._sources:
            compileall.compile_dir(path, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        self._environment = {"PYTHONPATH": os.pathsep.join(self._sources), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in _SLOW_TO_LOAD:
            import_module(name)
        if ours := sorted(name for name in sys.modules if name.partition(".")[0].startswith("hanse")):
            raise RuntimeError(f"{', '.join(ours)} of Hanse: loaded before the copy's could be")

    def imports(self, module: str) -> str:
        """The file that a process of the copy imports a module from."""
        command = [sys.executable, "-c", f"import {module}; print({module}.__file__)"]
        return subprocess.run(
            command, cwd=self.root, env=os.environ | self._environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    def passes(self, tests: Sequence[str], patience: float, plugins: Sequence[object] = ()) -> tuple[bool, str]:
        """Whether the tests pass; those that take longer than `patience` seconds do not. And what they printed."""
        with tempfile.TemporaryFile() as printed:
            sys.stdout.flush()
            process = os.fork()
            if not process:
                self._test(tests, printed.fileno(), plugins)
            code = ended(process, patience)
            printed.seek(0)
            return code == 0, printed.read().decode(errors="replace")

    def _test(self, tests: Sequence[str], printed: int, plugins: Sequence[object]) -> NoReturn:
        code = 70
        try:
            os.setsid()
            os.chdir(self.root)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            os.environ.update(self._environment)
            sys.dont_write_bytecode = True
            # The copy has tests of its own, this package among them.
            sys.path[:] = [*self._sources, *(path for path in sys.path if path and Path(path).name != "tests")]
            for name in [name for name in sys.modules if name.partition(".")[0] == "mutants"]:
                del sys.modules[name]
            import pytest

            code = int(pytest.main(["-x", "-q", *tests], plugins=plugins))
            sys.stdout.flush()
        finally:
            os._exit(code)
