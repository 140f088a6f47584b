"""Strategies, server optimizers, site algorithms, workflows and codecs by name, found by Python entry points: Hanse's
own, and those of packages that an operator has installed.

A name that nobody offers, or that two packages offer, is an error; nothing stands in for it. A plug-in is loaded when
it is asked for, so that one that cannot be loaded is in nobody else's way. `python -m hanse_fabric.plugins` lists all.
"""

from __future__ import annotations

import csv
import hashlib
import site
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.nearest import meant

STRATEGIES, SERVER_OPTIMIZERS = "hanse.strategies", "hanse.server_optimizers"
ALGORITHMS, WORKFLOWS, CODECS = "hanse.algorithms", "hanse.workflows", "hanse.codecs"
KINDS = {
    STRATEGIES: "strategy",
    SERVER_OPTIMIZERS: "server-optimizer",
    ALGORITHMS: "algorithm",
    WORKFLOWS: "workflow",
    CODECS: "codec",
}
"""The groups of entry points, with the word for one of each."""

_OURS = frozenset({"hanse-learning", "hanse-workflows"})
_DESCRIBING = frozenset({"METADATA", "entry_points.txt"})
"""Of a distribution's own notes, those that its maker wrote; the others are the installer's."""
_folders: dict[tuple[str, ...], tuple[int, ...]] = {}
"""When the folders of a path were changed last, before they were read."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """What one package offers under one name.

    Attributes:
        distribution: the package and its version.
        built_in: whether it is Hanse's own.
    """

    group: str
    name: str
    entry: EntryPoint
    distribution: str
    built_in: bool
    _digest: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def title(self) -> str:
        """What it is, and its name."""
        return f"{KINDS[self.group]} {self.name}"

    def __str__(self) -> str:
        return f"{self.title} of {self.distribution}"

    def load(self) -> Any:
        """The object itself.

        Raises:
            HanseError: INVALID_INPUT naming the plug-in, where its module cannot be imported.
        """
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:  # whatever a foreign module raises
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"{self} cannot be loaded: {self.entry.value} raised {type(error).__name__}: {error}",
                hint="mend the package, or uninstall it",
            ) from error

    def digest(self) -> str:
        """SHA-256 of its code, the same on every machine. It is read once in a process, when a run first needs it: what
        runs is what this process has loaded, whatever becomes of the files.

        It is made of the distribution's files as its RECORD lists them, without bytecode, scripts and the installer's
        notes; of the package's Python files, where it is installed in editable form.

        Raises:
            HanseError: NOT_FOUND where a file is gone.
        """
        if self._digest:
            return self._digest[0]
        made = hashlib.sha256()
        try:
            files = sorted(_files(self.entry))
            for name, path in files:
                made.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        except OSError as error:
            raise HanseError(ErrorCode.NOT_FOUND, f"{self}: {error}", hint="install the package again") from None
        if not files:
            raise HanseError(ErrorCode.NOT_FOUND, f"{self}: it has no files", hint="install the package again")
        self._digest.append(made.hexdigest())
        return self._digest[0]

    def blamed(self, error: BaseException) -> str | None:
        """What to tell of an exception that this plug-in is the reason of, with the last line of its own code and
        without the exception's message, which may quote data; None where it is Hanse's own, or where what it called of
        Hanse has failed."""
        for module, place in self._places(error):
            if self._owns(module):
                return f"{self} raised {type(error).__name__} in {place}"
            if module == "hanse" or module.startswith("hanse_"):
                return None
        return None

    def called_from(self, error: BaseException) -> str | None:
        """The last line of the plug-in's own code on the way to an exception, whoever raised it; None: none is."""
        return next((place for module, place in self._places(error) if self._owns(module)), None)

    def _owns(self, module: str) -> bool:
        return not self.built_in and module == self.entry.module.partition(".")[0]

    def _places(self, error: BaseException) -> Iterator[tuple[str, str]]:
        """Where an exception came by, the last place first: the module's first name, and line and file for people."""
        for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
            module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            yield module, f"line {line} of {Path(frame.f_code.co_filename).name}"

    def check_same(self, known: str | None, *, here: str, there: str) -> None:
        """Check that it is what another process means by the name.

        Args:
            known: the other's digest; None where it means one of Hanse's own.
            here, there: who has the plug-in, and who knows the digest.

        Raises:
            HanseError: CONFLICT naming both digests.
        """
        own = None if self.built_in else self.digest()
        if own != known:
            raise HanseError(
                ErrorCode.CONFLICT,
                f"{self}: {here} has {_shown(own)}, {there} has {_shown(known)}",
                hint="install one wheel in all images; `python -m hanse_fabric.plugins` shows digests",
            )


def _shown(digest: str | None) -> str:
    return "Hanse's own" if digest is None else f"digest {digest}"


def names(group: str) -> tuple[str, ...]:
    """All names that are offered, sorted."""
    return tuple(sorted(_found(group)))


def find(group: str, name: str) -> Plugin:
    """The plug-in of a name.

    Raises:
        HanseError: INVALID_INPUT where nobody offers the name, listing those that are known; CONFLICT where two do.
    """
    offered = _found(group).get(name, ())
    if not offered:
        known = f"known are {', '.join(names(group))}{meant(name, names(group))}"
        if not names(group):
            known = "not even Hanse's own are: its packages are older than its code; `make setup` installs them again"
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{name!r} is no {KINDS[group]} that is installed here; {known}",
            hint="docs/extending.md says how another one is installed",
        )  # fmt: skip
    if len(offered) > 1:
        raise HanseError(
            ErrorCode.CONFLICT,
            f"{KINDS[group]} {name} is offered by {' and by '.join(sorted(each.distribution for each in offered))}",
            hint="uninstall all of them but one",
        )
    return offered[0]


def built_in(group: str) -> tuple[Plugin, ...]:
    """Hanse's own, sorted by name."""
    found = (find(group, name) for name in names(group))
    return tuple(plugin for plugin in found if plugin.built_in)


def look_again() -> None:
    """Forget what packages offer where one was installed or removed since that was read: for a process that begins as
    the fork of one that has read it. Whoever is at work goes on with what it has found."""
    path = tuple(sys.path)
    if path in _folders and _folders[path] != _written(path):
        _installed.cache_clear()
        for folder in site.getsitepackages():
            site.addsitedir(folder)  # what is installed in editable form names the folder of its code in a file there


def _found(group: str) -> Mapping[str, tuple[Plugin, ...]]:
    return _installed(tuple(sys.path))[group]


@cache
def _installed(path: tuple[str, ...]) -> Mapping[str, Mapping[str, tuple[Plugin, ...]]]:
    """All plug-ins by group and name: at once, for all that is installed has to be read for any of them."""
    _folders[path] = _written(path)
    found: dict[str, dict[str, tuple[Plugin, ...]]] = {group: {} for group in KINDS}
    told: dict[int, tuple[str, bool]] = {}
    every = entry_points()
    for group, named in found.items():
        for entry in every.select(group=group):
            # Once: a distribution reads its file each time that it is asked for its name, and that may be gone later.
            if id(entry.dist) not in told or entry.dist is None:
                told[id(entry.dist)] = _package(entry)
            plugin = Plugin(group, entry.name, entry, *told[id(entry.dist)])
            named[entry.name] = (*named.get(entry.name, ()), plugin)
    return found


def _written(path: tuple[str, ...]) -> tuple[int, ...]:
    """When something was last put into or taken out of each folder; 0 of what cannot be looked at."""
    times = []
    for folder in path:
        try:
            times.append(Path(folder).stat().st_mtime_ns)
        except OSError:
            times.append(0)
    return tuple(times)


def _package(entry: EntryPoint) -> tuple[str, bool]:
    """Who offers it, and whether that is Hanse."""
    if (dist := entry.dist) is None:
        return entry.module, False
    return f"{dist.name} {dist.version}", dist.name in _OURS


def _files(entry: EntryPoint) -> Iterator[tuple[str, Path]]:
    """The files that a digest is made of, by a name that is the same on every machine."""
    listed = [*_recorded(entry.dist)] if entry.dist else []
    top = entry.module.partition(".")[0]
    if any(name.split("/")[0] in (top, f"{top}.py") for name, _ in listed):
        yield from listed
        return
    spec = find_spec(top)
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).rglob("*.py"):
            yield path.relative_to(Path(folder).parent).as_posix(), path
    if spec and not spec.submodule_search_locations and spec.origin:
        yield f"{top}.py", Path(spec.origin)


def _recorded(distribution: Distribution) -> Iterator[tuple[str, Path]]:
    # By RECORD itself: `Distribution.files` leaves out what is gone where the package importlib_metadata is loaded.
    for listed in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        path = PurePosixPath(listed[0])
        note = path.parent.suffix == ".dist-info" and path.name not in _DESCRIBING
        if ".." not in path.parts and path.suffix != ".pyc" and not note:
            yield path.as_posix(), Path(str(distribution.locate_file(path.as_posix())))


def main() -> None:
    """Print every plug-in with its package and, unless it is Hanse's own, its digest."""
    for group in KINDS:
        for name in names(group):
            try:
                plugin = find(group, name)
            except HanseError as error:
                print(f"{KINDS[group]} {name}: {error}")
            else:
                print(plugin, "" if plugin.built_in else plugin.digest())


if __name__ == "__main__":
    main()
