"""An environment without Hanse, with what Hanse's wheels say that they need of others, and nothing else.

No index is asked: the others' files are linked from the environment that runs the tests, exactly the distributions that
the wheels' own metadata bring. A dependency that a wheel forgets is therefore missing, and pip checks the versions.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PathDistribution, distributions
from importlib.util import cache_from_source
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_CLOSURE = str(ROOT / "docker")  # the images' closure: the same question


def ours(name: str) -> bool:
    """Whether a distribution is one of this repository's."""
    return name == "hanse" or name.startswith("hanse-")


def build_wheels(folder: Path) -> dict[str, Path]:
    """The wheels that `make wheels` builds, by their distributions' names."""
    command = [sys.executable, str(ROOT / "docker" / "wheels.py"), "--own", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return {canonicalize_name(path.name.split("-")[0]): path for path in folder.glob("*.whl")}


def metadata(wheel: Path) -> Distribution:
    """What a wheel says of itself."""
    name, version = wheel.name.split("-")[:2]
    return PathDistribution(zipfile.Path(wheel, f"{name}-{version}.dist-info/"))


class EmptyEnvironment:
    """An environment in `folder` with `wanted` of the wheels, by pip, and what they bring.

    Attributes:
        installed: the names of all distributions that `wanted` brings.
    """

    def __init__(self, folder: Path, wheels: Mapping[str, Path], wanted: Sequence[str]) -> None:
        if _CLOSURE not in sys.path:
            sys.path.append(_CLOSURE)
        from closure import closure

        self.folder = folder
        others = {name: one for one in distributions() if not ours(name := canonicalize_name(one.name))}
        known = others | {name: metadata(wheel) for name, wheel in wheels.items()}
        self.installed = closure(known, wanted)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
        here = Path(sysconfig.get_path("purelib"))
        there = folder / here.relative_to(sys.prefix)
        for name in self.installed & set(others):
            _link(others[name], str(here), str(there))
        # What is used is compiled when it is: less than half of what is installed.
        arguments = [
            "-q",
            "--no-compile",
            "--no-index",
            "--find-links",
            str(next(iter(wheels.values())).parent),
            *wanted,
        ]
        pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--python", str(self.python)]
        done = subprocess.run([*pip, "install", *arguments], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        self.environment = {
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200",
        }  # fmt: skip

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *command: str, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """What a command of this environment does in `cwd`, with no checkout on its path."""
        return subprocess.run(command, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=timeout)

    def start(self, *command: str, cwd: Path, log: Path | None = None) -> subprocess.Popen[str]:
        """The same, in the background; what it prints goes to `log`, or to a pipe."""
        with (log or Path(os.devnull)).open("w") as file:
            out = file if log else subprocess.PIPE
            return subprocess.Popen(
                command, cwd=cwd, env=self.environment, text=True, stdin=subprocess.PIPE, stdout=out, stderr=log and out
            )


def _link(found: Distribution, here: str, there: str) -> None:
    """With what is compiled of it by now, which is good as long as the linked source is the one that it is of.

    Names are put together as text: there are tens of thousands, and paths as objects took two seconds of a core.
    """
    folders = set[str]()
    for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
        named = row[0]
        for file in (named, cache_from_source(named)) if named.endswith(".py") else (named,):
            source, target = os.path.normpath(f"{here}/{file}"), os.path.normpath(f"{there}/{file}")
            if (folder := target.rpartition("/")[0]) not in folders:
                Path(folder).mkdir(parents=True, exist_ok=True)
                folders.add(folder)
            try:
                os.link(source, target)
            except (FileNotFoundError, FileExistsError):
                continue
            except OSError:  # another file system
                shutil.copy2(source, target)
