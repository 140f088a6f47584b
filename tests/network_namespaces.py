"""Machines of a test: network namespaces that see each other by a bridge and nothing else, where root may make them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def can_be_made() -> bool:
    """Whether this user may make them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"hanse-try-{os.getpid()}"
    try:
        ip("netns", "add", name)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    ip("netns", "del", name)
    return True


class Machine:
    """One of them: `address`, and how a command is run there."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address

    def at(self, *command: str) -> list[str]:
        """A command line that runs there."""
        return ["ip", "netns", "exec", self.name, *command]


@contextlib.contextmanager
def machines(names: Sequence[str], inside: Sequence[str] = ()) -> Iterator[list[Machine]]:
    """A machine for each name. The first has the bridge; the others reach it, and each other, by that alone. Those
    `inside` reach the last of `names` alone, which does not route, at the first address of their own network."""
    net, made = f"10.{os.getpid() % 200 + 20}", list[Machine]()
    try:
        for number, name in enumerate(names, 1):
            made.append(_machine(name, f"{net}.77.{number}"))
            _linked(made[0], made[-1], "bridge0")
        door = Machine(made[-1].name, f"{net}.78.1")
        for number, name in enumerate([names[-1], *inside] if inside else [], 1):
            if number > 1:
                made.append(_machine(name, f"{net}.78.{number}"))
            _linked(door, made[-1] if number > 1 else door, "bridge1")
        yield made
    finally:
        for machine in made:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", machine.name)


def _machine(name: str, address: str) -> Machine:
    made = Machine(f"hanse-{os.getpid()}-{name}", address)
    ip("netns", "add", made.name)
    ip("-n", made.name, "link", "set", "lo", "up")
    return made


def _linked(first: Machine, machine: Machine, bridge: str) -> None:
    """Have a machine at the first one's bridge, which is made with itself."""
    if machine is first:
        ip("-n", first.name, "link", "add", bridge, "type", "bridge")
        ip("-n", first.name, "addr", "add", f"{first.address}/24", "dev", bridge)
        ip("-n", first.name, "link", "set", bridge, "up")
        return
    there, here = f"to-{machine.address.rpartition('.')[2]}-{bridge[-1]}", "out0"
    ip("-n", machine.name, "link", "add", here, "type", "veth", "peer", "name", there, "netns", first.name)
    ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", here)
    ip("-n", machine.name, "link", "set", here, "up")
    ip("-n", first.name, "link", "set", there, "master", bridge)
    ip("-n", first.name, "link", "set", there, "up")
