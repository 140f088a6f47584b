"""Trains across containers: starts docker/compose.yaml step by step, trains, shows how each container ran, cleans up.

`make images-demo`, or `python docker/demo.py [--compose "docker compose"] [--engine docker] [--keep]`. The steps are
taken here one after the other because podman before 4.6 cannot start a container whose dependencies have ended.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PROJECT = "hanse-demo"
LIMIT_S = 300.0
PHASES = (
    ("prepare",),
    ("nats", "store"),
    ("state",),
    ("coordinator", "aggregator", "model-registry", "compensator", "console"),
    ("invite",),
    ("site-north", "site-south"),
    ("train",),
)
ENDING = frozenset({"prepare", "state", "invite", "train"})
"""Steps that end; the others are asked whether they are alive."""


class FailedError(Exception):
    """A step did not do what it should."""


class Trial:
    """The containers of one demonstration, by the names that compose gives them."""

    def __init__(self, compose: Sequence[str], engine: str, file: Path) -> None:
        self._compose = (*compose, "--project-name", PROJECT, "--file", str(file))
        self._engine = engine

    def compose(self, *arguments: str) -> None:
        """Run compose; FailedError with the end of what it said."""
        self._run((*self._compose, *arguments))

    def engine(self, *arguments: str) -> str:
        """Run the engine; FailedError with the end of what it said. Returns its output."""
        return self._run((self._engine, *arguments))

    def container(self, service: str) -> str:
        """The container of a service."""
        label = f"label=com.docker.compose.service={service}"
        project = f"label=com.docker.compose.project={PROJECT}"
        found = self.engine("ps", "--all", "--quiet", "--filter", project, "--filter", label).split()
        if not found:
            raise FailedError(f"{service}: there is no such container")
        return found[0]

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine says of a service's container."""
        found: dict[str, Any] = json.loads(self.engine("inspect", "--type", "container", self.container(service)))[0]
        return found

    def start(self, services: Sequence[str]) -> float:
        """Start services and wait until they have ended, or are alive; returns the seconds that took."""
        began = time.monotonic()
        self.compose("--profile", "train", "up", "--detach", "--no-deps", *services)
        for service in services:
            while not self._arrived(service):
                if time.monotonic() - began > LIMIT_S:
                    raise FailedError(f"{service}: not there within {LIMIT_S:g} s\n{self.log(service)}")
                time.sleep(0.2)
        return time.monotonic() - began

    def _arrived(self, service: str) -> bool:
        state = self.inspect(service)["State"]
        if service in ENDING:
            if state["Status"] == "exited" and state["ExitCode"] != 0:
                raise FailedError(f"{service}: exit status {state['ExitCode']}\n{self.log(service)}")
            return bool(state["Status"] == "exited")
        if service in ("nats", "store"):  # nothing in their images could ask; `state` waits for both
            return bool(state["Status"] == "running")
        probe = (self._engine, "exec", self.container(service), "python", "-m", "hanse_fabric.probe", "/readyz")
        return subprocess.run(probe, capture_output=True, check=False, timeout=60).returncode == 0

    def log(self, service: str) -> str:
        """The end of a service's output."""
        done = subprocess.run(
            (self._engine, "logs", "--tail", "15", self.container(service)),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * LIMIT_S)
        if done.returncode != 0:
            raise FailedError(f"{shlex.join(command)}\n{done.stderr[-2000:]}")
        return done.stdout


def confined(found: dict[str, Any]) -> list[str]:
    """What of a container's confinement is missing; empty when it is all there."""
    host = found["HostConfig"]
    user = str(found["Config"].get("User", ""))
    # What podman lists is what is left; docker lists what was taken away.
    caps = found["EffectiveCaps"] if "EffectiveCaps" in found else (None if "ALL" in host["CapDrop"] else ["some"])
    wrong = {
        "its root can be written": not host["ReadonlyRootfs"],
        f"its user is {user or 'root'}": user.partition(":")[0] != "65532",
        f"it has capabilities {caps}": bool(caps),
        "it may gain privileges": not any("no-new-privileges" in option for option in host["SecurityOpt"]),
        "its memory has no limit": not host["Memory"],
    }
    return [text for text, is_wrong in wrong.items() if is_wrong]


def without_dependencies(folder: Path) -> Path:
    """The compose file for starting step by step."""
    body = yaml.safe_load((HERE / "compose.yaml").read_text())
    for service in body["services"].values():
        service.pop("depends_on", None)
        service.pop("ports", None)  # several demonstrations may run side by side
        service["volumes"] = [text.replace("./", f"{HERE.absolute()}/") for text in service["volumes"]]
    path = folder / "compose.yaml"
    path.write_text(yaml.safe_dump({key: body[key] for key in ("services", "networks", "volumes")}, sort_keys=False))
    return path


def main() -> int:
    """See the module; 0 where the run came to its end and every container was confined."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compose", default="podman-compose", help="command that reads compose files")
    parser.add_argument("--engine", default="podman")
    parser.add_argument("--keep", action="store_true", help="leave the containers running")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(shlex.split(options.compose), options.engine, without_dependencies(Path(folder)))
        try:
            for services in PHASES:
                print(f"{', '.join(services)}: {trial.start(services):.1f} s", flush=True)
            for service in (name for services in PHASES for name in services if name != "prepare"):
                wrong = confined(trial.inspect(service))
                print(f"{service}: {'; '.join(wrong) or 'read-only root, uid 65532, no capabilities, limited'}")
                if wrong:
                    return 1
            print(trial.log("train"))
        except FailedError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        finally:
            if not options.keep:
                trial.compose("--profile", "train", "down", "--volumes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
