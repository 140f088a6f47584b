"""Sizes of the images apart from their base, and how long each service takes to answer /healthz.

`python docker/measure.py [--engine podman] [--base IMAGE] [--tag TAG] [--times 3]`, as root or as whoever may use the
engine; prints a table in Markdown. Seconds are the least of several starts, from the engine's command to the answer;
processor seconds, which a busy machine does not lengthen, are those of the service alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

SERVICES = ("coordinator", "aggregator", "compensator", "model-registry", "console", "datapod")
IMAGES = (*SERVICES, "tools", "hub", "nats", "seaweedfs")
PORT = 18_081
LIMIT_S = 60.0
SETTINGS = {
    "HANSE_HEALTH_HOST": "127.0.0.1",
    "HANSE_HEALTH_PORT": str(PORT),
    "HANSE_BUS_URL": "nats://127.0.0.1:1",  # /healthz answers before the bus does
    "HANSE_JOIN_URL": "http://127.0.0.1:1",
    "HANSE_TOKEN": "none",
    "HANSE_DATA": "/tmp/none.npz",  # noqa: S108
    "HANSE_CONSOLE_HUB": "http://127.0.0.1:1",
    "HANSE_REGISTRY_KEY": "/tmp/registry.pem",  # noqa: S108 - in the container
    "HANSE_COMPENSATOR_KEY": "/tmp/compensator.pem",  # noqa: S108
}


class Measured:
    """Images of one tag, by one engine."""

    def __init__(self, engine: str, tag: str) -> None:
        self._engine, self._tag = engine, tag

    def size(self, image: str) -> int:
        """Bytes of an image's files."""
        return int(self._run("image", "inspect", "--format", "{{.Size}}", image))

    def name(self, image: str) -> str:
        """An image's full name."""
        return f"localhost/hanse-{image}:{self._tag}"

    def start(self, image: str) -> tuple[float, float]:
        """Seconds to /healthz, and processor seconds that the service has used by then."""
        settings = [f"--env={name}={value}" for name, value in SETTINGS.items()]
        options = ("--read-only", "--cap-drop=ALL", "--tmpfs=/tmp", "--network=host", "--no-healthcheck", *settings)
        began = time.monotonic()
        container = self._run("run", "--detach", *options, self.name(image)).strip()
        try:
            while not _answers():
                if time.monotonic() - began > LIMIT_S:
                    raise TimeoutError(f"{image}: no answer within {LIMIT_S:g} s\n{self._run('logs', container)}")
                time.sleep(0.01)
            wall = time.monotonic() - began
            return wall, _processor_seconds(int(self._run("inspect", "--format", "{{.State.Pid}}", container)))
        finally:
            self._run("rm", "--force", "--time=2", container)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run((self._engine, *arguments), capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"{self._engine} {' '.join(arguments)}: {done.stderr[-500:]}")
        return done.stdout


def _answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/healthz", timeout=1) as answer:
            return "alive" in json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _processor_seconds(pid: int) -> float:
    """NaN where the process has ended: a datapod does, for there is no hub to join."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="podman")
    parser.add_argument("--base", default="localhost/hanse-base:bookworm")
    parser.add_argument("--tag", default="0.1.0")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    measured = Measured(options.engine, options.tag)
    base = measured.size(options.base)
    print(f"Base: {base / 1e6:.0f} MB.\n")
    print("| image | MB apart from the base | to /healthz, s | processor, s |\n|---|---|---|---|")
    for image in IMAGES:
        alone = measured.size(measured.name(image)) - (0 if image in ("nats", "seaweedfs") else base)
        row = ("-", "-")
        if image in SERVICES:
            starts = [measured.start(image) for _ in range(options.times)]
            row = (
                f"{min(wall for wall, _ in starts):.1f}",
                "-" if math.isnan(used := min(used for _, used in starts)) else f"{used:.1f}",
            )
        print(f"| {image} | {alone / 1e6:.0f} | {row[0]} | {row[1]} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
