"""The files of code that was written for another framework, read once: what is hashed is what runs.

A file's digest is its SHA-256. A folder's is that of the lines which `sha256sum` writes of its files, sorted by path;
hidden files and `__pycache__` are no part of it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from hanse_fabric.errors import ErrorCode, unfit

_MOST_BYTES, _MOST_FILES = 8 << 20, 256
_PROJECT = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Source:
    """Read code.

    Attributes:
        files: by path in it.
        entry: the file's name; None of a folder, whose `pyproject.toml` says where it begins.
    """

    path: Path
    digest: str
    files: Mapping[str, bytes]
    entry: str | None

    def imports(self) -> list[str]:
        """The modules of other packages that it imports, so far as its text says."""
        own = {PurePosixPath(name).parts[0].removesuffix(".py") for name in self.files}
        found: set[str] = set()
        for tree in self._trees():
            found.update(_imported(tree))
        return sorted(name for name in found if name.split(".")[0] not in own)

    def keywords(self, *names: str) -> dict[str, str]:
        """Texts that its calls give to these keywords, as they are written; of several the first.

        A Flower server names so the records of its messages (`FedAvg(arrayrecord_key="weights")`), and it is not run
        where its clients are.
        """
        found: dict[str, str] = {}
        for tree in self._trees():
            for node in ast.walk(tree):
                if isinstance(node, ast.keyword) and node.arg in names and isinstance(node.value, ast.Constant):
                    found.setdefault(str(node.arg), str(node.value.value))
        return found

    def _trees(self) -> Iterator[ast.AST]:
        for name, text in self.files.items():
            if name.endswith(".py"):
                with suppress(SyntaxError, ValueError):  # running it says so, with the line
                    yield ast.parse(text)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def read_source(location: Path, wanted: Mapping[str, Any]) -> Source:
    """Read the code that a task names.

    Args:
        location: the site's `--code`: the file or folder itself, or a folder with `NAME.py` or `NAME/`.
        wanted: the task's `{name, digest}`.

    Raises:
        HanseError: NOT_FOUND; TOO_LARGE; TAMPERED where the digest is another.
    """
    found = source_at(_place(location, str(wanted["name"])))
    if found.digest != wanted["digest"]:
        raise unfit(
            f"site code {found.path.name}: its SHA-256 is {found.digest}, the job names {wanted['digest']}",
            str(found.path),
            code=ErrorCode.TAMPERED,
            hint="mount the file or folder that the job names, and approve its digest in the policy",
        )
    return found


def codes_at(location: Path) -> list[Path]:
    """All code that lies at the site's `--code`: files, and folders of apps."""
    if not location.is_dir() or (location / _PROJECT).exists():
        return [location]
    return sorted([*location.glob("*.py"), *(path.parent for path in location.glob(f"*/{_PROJECT}"))])


def source_at(path: Path) -> Source:
    """Read a file or folder of code.

    Raises:
        HanseError: NOT_FOUND where it cannot be read; TOO_LARGE; INVALID_INPUT for a link in it, and for a folder that
            is no app's.
    """
    try:
        if not path.is_dir():
            text = _limited(path, [path])[path]
            return Source(path, hashlib.sha256(text).hexdigest(), {path.name: text}, path.name)
        texts = _limited(path, list(_files(path)))
    except OSError as error:
        raise unfit(
            f"site code {path.name}: {error.strerror or type(error).__name__}", str(path), code=ErrorCode.NOT_FOUND
        ) from None
    files = {found.relative_to(path).as_posix(): text for found, text in texts.items()}
    if _PROJECT not in files:
        raise unfit(
            f"site code {path.name}: a folder without {_PROJECT}, a file or an app's is expected", str(path),
            code=ErrorCode.INVALID_INPUT,
        )  # fmt: skip
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return Source(path, hashlib.sha256("".join(lines).encode()).hexdigest(), files, None)


def _place(location: Path, name: str) -> Path:
    if not location.is_dir() or (location / _PROJECT).exists():
        return location
    file, folder = location / f"{name}.py", location / name
    return folder if folder.is_dir() and not file.exists() else file


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_symlink():
            raise unfit(
                f"site code {path.name}: a link, where files of the code are expected", str(path),
                code=ErrorCode.INVALID_INPUT,
            )  # fmt: skip
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _limited(path: Path, files: list[Path]) -> dict[Path, bytes]:
    """The files' bytes; sizes are looked at first."""
    size = sum(file.stat().st_size for file in files)
    if len(files) > _MOST_FILES or size > _MOST_BYTES:
        raise unfit(
            f"site code {path.name}: {len(files)} files of {size} bytes; {_MOST_FILES} files and {_MOST_BYTES} bytes "
            "are allowed",
            str(path),
            code=ErrorCode.TOO_LARGE,
            hint="data do not belong to the code: name them by --data, or the policy's sandbox.read",
        )
    return {file: file.read_bytes() for file in files}
