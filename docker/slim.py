"""Takes away what an installed environment does not need in order to run: tests, headers, stubs, static libraries.

Runs in the build stage, with the standard library alone: `python slim.py ENVIRONMENT IMAGE DECLARED`. An image that
says in DECLARED (images.toml) which parts of SciPy it loads gets no others; `loads.py` shows that all can be loaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

FOLDERS = frozenset({"tests", "__pycache__"})
ENDINGS = frozenset({".pyi", ".pyx", ".pxd", ".pxi", ".h", ".hpp", ".cuh", ".a", ".c", ".cc", ".cpp", ".f", ".f90"})
PARTS = (
    "Crypto/IO",
    "Crypto/Math",
    "Crypto/Protocol",
    "Crypto/PublicKey",
    "Crypto/SelfTest",
    "Crypto/Signature",
    "numpy/_core/_simd*.so",
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
"""Tests under other names; compilers' parts; copies of libraries under names that no program asks for, for a wheel has
no links; and of pycryptodome all but the ciphers, which the S3 client loads (Hanse's own cryptography is another
library's)."""
COMPILED = "triton/backends/nvidia"
"""Triton compiles these sources on the machine where a GPU is, and without them no kernel of its runs."""
ARROW = ("flight", "s3")
"""Of Arrow only tables and Parquet files are read; these are its libraries for remote servers."""


def unneeded(packages: Path, scipy: Collection[str] | None) -> Iterator[Path]:
    """What goes, in `packages` (a site-packages folder), outermost first; of `scipy` only these parts stay."""
    if scipy is not None:
        yield from (path for path in (packages / "scipy").iterdir() if path.is_dir() and path.name not in scipy)
        if "stats" not in scipy:  # which alone asks for these functions in Cython's form
            yield from packages.glob("scipy/special/cython_special*")
    for part in PARTS:
        yield from packages.glob(part)
    for name in ARROW:
        yield from (packages / "pyarrow").glob(f"libarrow*_{name}*.so*")
        yield from (packages / "pyarrow").glob(f"_{name}*.so")
    for path in sorted(packages.rglob("*")):
        if not path.is_dir() and path.is_relative_to(packages / COMPILED):
            continue
        if path.name in FOLDERS if path.is_dir() else path.suffix in ENDINGS:
            yield path


def strip_symbols(packages: Path) -> None:
    """Remove debug symbols of extension modules and libraries (of torch that is 98 MB). Not of packages that bring
    libraries of others beside them: those were patched for it, which not every strip survives."""
    patched = {"PIL"} | {name for path in packages.glob("*.libs") for name in (path.name, path.stem)}
    libraries = (path for pattern in ("*.so", "*.so.*") for path in packages.rglob(pattern))
    modules = sorted(path for path in libraries if path.relative_to(packages).parts[0] not in patched)
    if modules:
        subprocess.run(["strip", "--strip-unneeded", *map(str, modules)], check=True)


def share_libraries(packages: Path) -> None:
    """Make links of libraries that several packages bring under one name, which has their digest in it."""
    first: dict[str, Path] = {}
    for library in sorted(packages.glob("*.libs/*.so*")):
        known = first.setdefault(library.name, library)
        if known is not library and known.stat().st_size == library.stat().st_size:
            library.unlink()
            library.symlink_to(Path("..") / known.relative_to(packages))


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
        strip_symbols(packages)
        share_libraries(packages)
    print(f"removed {removed / 1e6:.0f} MB that no service uses")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
