"""Takes away what an installed environment does not need in order to run: tests, headers, stubs, static libraries.

Runs in the build stage, with the standard library alone: `python slim.py ENVIRONMENT IMAGE DECLARED`. An image that
says in DECLARED (images.toml) which parts of SciPy it loads gets no others; `loads.py` shows that all can be loaded.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

FOLDERS = frozenset({"tests", "__pycache__"})
ENDINGS = frozenset({".pyi", ".pyx", ".pxd", ".pxi", ".h", ".hpp", ".cuh", ".a", ".c", ".cc", ".cpp", ".f", ".f90"})
PARTS = (
    "Crypto/SelfTest",
    "numpy/distutils",
    "pyarrow/include",
    "pyarrow/libarrow*.so",
    "pyarrow/libarrow*.so.*.*",
    "pyarrow/src",
    "torch/bin/test_*",
    "torch/bin/protoc*",
    "torch/bin/*Test",
    "torch/lib/*_test.so",
    "torch/include",
    "torch/share",
    "torch/test",
    "torchgen/packaged",
)
"""Tests under other names; compilers' parts, for nothing is compiled where a service runs; and copies of libraries
under names that no program asks for, for a wheel has no links."""
ARROW = ("flight", "s3")
"""Of Arrow only tables and Parquet files are read; these are its libraries for remote servers."""


def unneeded(packages: Path, scipy: Collection[str] | None) -> Iterator[Path]:
    """What goes, in `packages` (a site-packages folder), outermost first; of `scipy` only these parts stay."""
    if scipy is not None:
        yield from (path for path in (packages / "scipy").iterdir() if path.is_dir() and path.name not in scipy)
    for part in PARTS:
        yield from packages.glob(part)
    for name in ARROW:
        yield from (packages / "pyarrow").glob(f"libarrow*_{name}*.so*")
        yield from (packages / "pyarrow").glob(f"_{name}*.so")
    for path in sorted(packages.rglob("*")):
        if path.name in FOLDERS if path.is_dir() else path.suffix in ENDINGS:
            yield path


def main(environment: Path, image: str, declared: Path) -> int:
    """Slim the environment in place; says how much that was."""
    scipy = tomllib.loads(declared.read_text())[image].get("scipy")
    removed = 0
    for packages in environment.glob("lib/python3*/site-packages"):
        for path in list(unneeded(packages, scipy)):
            if path.is_dir():
                removed += sum(part.stat().st_size for part in path.rglob("*") if part.is_file())
                shutil.rmtree(path)
            elif path.exists():
                removed += path.stat().st_size
                path.unlink()
    print(f"removed {removed / 1e6:.0f} MB that only tests and compilers use")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
