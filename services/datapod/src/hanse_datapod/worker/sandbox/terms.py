"""What the site's administrator says about the worker's sandbox, and what a worker's process may reach in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.sandbox.libraries import of_the_system
from hanse_fabric.errors import invalid
from hanse_fabric.messages.base import Frozen


class SandboxPolicy(Frozen):
    """The policy's section `sandbox`.

    Attributes:
        mode: `auto` takes what the machine has; `required` refuses to run site code where files or network cannot be
            closed; `none` closes nothing.
        read: files and folders beside the data and the code that the worker may read.
        network: True leaves it the datapod's network; else its own loopback is all there is.
        apart: True runs site code in the workers of pools alone, which have neither keys nor policy beside them.
    """

    mode: Literal["auto", "required", "none"] = "auto"
    read: tuple[Path, ...] = ()
    network: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a worker's process got.

    Attributes:
        files: it opens nothing but what it may reach.
        network: it has none but a loopback of its own, or none at all; or the policy leaves it the datapod's.
        processes: it sees no others, and the kernel ends what it started together with it.
    """

    files: bool = False
    network: bool = False
    processes: bool = False

    @property
    def sound(self) -> bool:
        """Whether neither the keys nor the network are in reach."""
        return self.files and self.network

    def __str__(self) -> str:
        parts = {"keys and files": self.files, "the network": self.network, "other processes": self.processes}
        closed, open_ = ([name for name, done in parts.items() if done is wanted] for wanted in (True, False))
        told = [f"{verb} {', '.join(names)}" for verb, names in (("closed are", closed), ("open are", open_)) if names]
        return "; ".join(told)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a worker's process may reach of the site's, by absolute paths.

    Attributes:
        read: files and folders.
        write: folders, the worker's alone; what they lie in has the datapod's own files.
    """

    read: frozenset[Path] = frozenset()
    write: frozenset[Path] = frozenset()
    policy: SandboxPolicy = field(default_factory=SandboxPolicy)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Reach:
        """What a request to a worker names: its data, code, inputs, and where it writes."""
        data, policy = _same_for_all(json.dumps([body["data"], body.get("sandbox") or {}, body.get("code")]))
        read = [body.get("model"), *(body.get("extras") or {}).values()]
        write = [Path(body["output"]).parent, Path(body["state"])] if "output" in body else []
        write += [Path(body["scratch"])] if body.get("scratch") else []
        return cls(data | absolute(read), absolute(write), policy)

    def places_of(self, other: Reach) -> frozenset[Path] | None:
        """Where in this all lies that `other` may reach, under the same policy; None where some lies nowhere in it."""
        if self.policy != other.policy:
            return None
        found: set[Path] = set()
        for path in other.write:
            found.update(places := _around(path, self.write))
            if not places:
                return None
        for path in other.read:
            found.update(places := _around(path, self.read) + _around(path, self.write))
            if not places:
                return None
        return frozenset(found)

    def joined(self, other: Reach) -> Reach:
        """Both, under the policy of `other`."""
        write = _outermost(self.write | other.write)
        return Reach(_outermost(self.read | other.read, write), write, other.policy)

    def files(self) -> dict[Path, tuple[int, int] | None]:
        """What lies at each path now: a process keeps what it was given when it began."""
        return {path: identity_of(path) for path in self.read | self.write}

    def require_apart(self, home: Path) -> None:
        """Check that nothing to be read holds the datapod's home, with its keys.

        Raises:
            HanseError: INVALID_INPUT naming the folder.
        """
        own = home.absolute()
        for path in sorted({*self.read, *of_the_system()}):
            if self.policy.mode != "none" and (path == own or path in own.parents):
                raise invalid("home", str(home), f"a folder outside of {path}, which the worker reads")

    def body(self) -> dict[str, Any]:
        """As a worker's process is told it."""
        return {
            "read": sorted(map(str, self.read)),
            "write": sorted(map(str, self.write)),
            "policy": self.policy.model_dump(mode="json"),
        }

    @classmethod
    def told(cls, body: Mapping[str, Any]) -> Reach:
        """What `body` made."""
        return cls(absolute(body["read"]), absolute(body["write"]), SandboxPolicy.model_validate(body["policy"]))


def data_files(data: DataSettings) -> list[Path | None]:
    """All files and folders that data lie in."""
    train = [data.train]
    if data.is_genotypes and data.train is not None:
        train = [Path(f"{data.prefix}{ending}") for ending in (".bed", ".bim", ".fam")]
    return [*train, data.test, data.phenotypes, data.covariates]


@lru_cache(maxsize=1024)
def _same_for_all(text: str) -> tuple[frozenset[Path], SandboxPolicy]:
    """What all requests of a participant may read, and the policy, from their JSON: data, sandbox and code."""
    data, sandbox, code = json.loads(text)
    policy = SandboxPolicy.model_validate(sandbox)
    return absolute([*data_files(DataSettings.model_validate(data)), *policy.read, code]), policy


def runs_code(body: Mapping[str, Any]) -> bool:
    """Whether a request runs the site's code."""
    return bool(dict(body.get("config") or {}).get("code")) or body["data"]["kind"] == "code"


def absolute(paths: Any) -> frozenset[Path]:
    """Those that are given, from the root."""
    return frozenset(Path(path).absolute() for path in paths if path is not None)


def _around(path: Path, places: frozenset[Path]) -> list[Path]:
    """Of absolute places, those that an absolute path lies at or in. (By text: this is asked several times a task.)"""
    named, text, found = _by_text(places), str(path), []
    while text:
        if (place := named.get(text)) is not None:
            found.append(place)
        text = text.rpartition("/")[0]
    if (root := named.get("/")) is not None and path != root:
        found.append(root)
    return found


@lru_cache(maxsize=256)
def _by_text(places: frozenset[Path]) -> dict[str, Path]:
    return {str(place): place for place in places}


def _outermost(paths: frozenset[Path], others: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """Those that lie in none of the rest, and neither in nor at one of the `others`."""
    return frozenset(
        path for path in paths - others if paths.isdisjoint(path.parents) and others.isdisjoint(path.parents)
    )


def identity_of(path: Path) -> tuple[int, int] | None:
    """What lies at a path: its file system and inode; None for nothing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
