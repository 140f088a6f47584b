"""`docker` lines of the docs and of the console, done without a container engine, by processes.

What runs, forked from a process that has loaded it, is the module of the image's entry point with the line's settings
and arguments, and nothing else of the caller's environment. A volume is a folder. A path within the container is that
folder's path here, and a published port is any free one. What a container's walls would keep out, its user, and a root
that cannot be written are not shown by this.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import forked_sites
from forked_commands import Commands

_DOCKERFILE = Path(__file__).parents[1] / "docker" / "Dockerfile"
_ALONE = frozenset({"-d", "--rm", "--read-only"})
"""Options without a value."""
_HOME = "/var/lib/hanse-datapod"


@dataclass
class Container:
    """What a `docker run` line says.

    Attributes:
        environment: the settings, with paths and ports as they are here.
        arguments: behind the image; none: the image's own.
        folders: and files that are mounted, by their path within the container.
        ports: here, by their number within the container.
    """

    image: str = ""
    name: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    folders: dict[str, Path] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def here(self, word: str) -> str:
        """A word with what is within the container as it is here."""
        for place, folder in self.folders.items():
            if word == place or word.startswith(f"{place}/"):
                return str(folder) + word[len(place) :]
        address = re.fullmatch(r"0\.0\.0\.0:([0-9]+)", word)
        return f"127.0.0.1:{self.ports[address[1]]}" if address and address[1] in self.ports else word


def read(line: str, machine: Path, shell: Mapping[str, str] | None = None) -> Container:
    """A `docker run` line.

    Args:
        machine: stands for the root of the machine on which it is typed: a volume of `/srv/data` is `srv/data` in it.
        shell: variables that whoever types it has set.
    """
    words = iter(shlex.split(line.replace("\\\n", " ")))
    assert [next(words), next(words)] == ["docker", "run"]
    made = Container()
    environment: dict[str, str] = {}
    for word in words:
        if word in _ALONE:
            continue
        if not word.startswith("-"):
            made.image, made.arguments = word.partition(":")[0], list(words)
            break
        value = next(words)
        if word == "-e":
            name, equals, given = value.partition("=")
            if equals or name in (shell or {}):
                environment[name] = given if equals else (shell or {})[name]
        elif word == "-v":
            source, place = value.split(":")[:2]
            made.folders[place] = (
                machine / source.lstrip("/") if source.startswith("/") else machine / "volumes" / source
            )
        elif word == "-p":
            address, port = value.rsplit(":", 1)
            assert address.startswith("127.0.0.1:"), f"{value}: to be reached from this machine alone"
            made.ports[port] = _free_port()
        elif word == "--name":
            made.name = value
    made.environment = {name: made.here(value) for name, value in environment.items()}
    if _HOME in made.folders:
        made.environment["HANSE_HOME"] = str(made.folders[_HOME])
    return made


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def started(container: Container, machine: Path, sites: Path) -> Iterator[None]:
    """It runs while inside, and is told to stop then, as `docker stop` does.

    Args:
        sites: where it is forked, as what the image's entry point is.
    """
    for place in container.folders.values():
        if not place.exists():
            place.mkdir(parents=True)
    entry, own = _entry_point(container.image)
    words, log = _program([*entry, *(container.arguments or own)]), machine / "log"
    environment = _environment(container, machine)
    with forked_sites.running(words, sites, cwd=_tmp(machine), env=environment, log=log) as running:
        try:
            yield
            assert running.poll() is None, log.read_text()[-3000:]
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(30)


def run(container: Container, machine: Path, commands: Commands) -> subprocess.CompletedProcess[str]:
    """A container that does one thing and ends (`docker run --rm`)."""
    entry, own = _entry_point(container.image)
    return _told([*entry, *(container.arguments or own)], container, machine, commands)


def within(line: str, container: Container, machine: Path, commands: Commands) -> subprocess.CompletedProcess[str]:
    """A `docker exec` line of a container that runs."""
    words = shlex.split(line)
    assert words[:3] == ["docker", "exec", container.name]
    return _told([container.here(word) for word in words[3:]], container, machine, commands)


def _told(
    command: list[str], container: Container, machine: Path, commands: Commands
) -> subprocess.CompletedProcess[str]:
    return commands.run(_program(command), cwd=_tmp(machine), env=_environment(container, machine), timeout=60)


def _entry_point(image: str) -> tuple[list[str], list[str]]:
    """An image's entry point, and its arguments where a line gives none."""
    stages = re.split(r"^FROM ", _DOCKERFILE.read_text(), flags=re.MULTILINE)
    (stage,) = [each for each in stages if each.partition("\n")[0].endswith(f" AS {image.removeprefix('hanse-')}")]
    found = {name: json.loads(words) for name, words in re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", stage, re.MULTILINE)}
    return found["ENTRYPOINT"], found.get("CMD", [])


def _program(command: list[str]) -> list[str]:
    """The words of a module that is started as a program."""
    assert command[:2] == ["python", "-m"], command
    return command[2:]


def _environment(container: Container, machine: Path) -> dict[str, str]:
    own = {"HOME": str(machine), "TMPDIR": str(_tmp(machine)), "OMP_NUM_THREADS": "1"}
    own |= {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}  # as what it is forked from
    return {**own, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **container.environment}


def _tmp(machine: Path) -> Path:
    (machine / "tmp").mkdir(parents=True, exist_ok=True)
    return machine / "tmp"
