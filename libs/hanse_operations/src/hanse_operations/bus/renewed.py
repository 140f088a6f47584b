"""`python -m hanse_operations.bus.renewed`: has the nats-server beside it load its certificates when they were renewed.

nats-server reads the files at its start, and when it gets SIGHUP; clients that are connected stay so. Both are in one
pod, whose containers see each other's processes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path

from hanse_fabric.health import HealthServer
from hanse_fabric.telemetry import configure_logging

PROGRAM = "nats-server"
_LOG = logging.getLogger(__name__)


class Renewals:
    """Looks at a folder's files.

    Args:
        pid_file: where the server has written its process id.
        folder: of its certificates.
    """

    def __init__(self, pid_file: Path, folder: Path) -> None:
        self._pid_file, self._folder = pid_file, folder
        self._loaded = self._digest()

    def look(self) -> bool:
        """Tell the server where the files have changed since it was told last; whether it was. A server that cannot be
        told now is told at a later look."""
        found = self._digest()
        if found == self._loaded:
            return False
        try:
            number = int(self._pid_file.read_text())
            if Path(f"/proc/{number}/comm").read_text().strip() != PROGRAM:
                raise ProcessLookupError(f"process {number} is no {PROGRAM}")
            os.kill(number, signal.SIGHUP)
        except (OSError, ValueError) as error:
            _LOG.warning("certificates were renewed, and the server cannot be told yet: %s", error)
            return False
        self._loaded = found
        _LOG.info("certificates were renewed; the server was told")
        return True

    def _digest(self) -> str:
        """Of all files, by content: Kubernetes replaces the folder that a Secret's files are links to."""
        whole = hashlib.sha256()
        for path in sorted(self._folder.iterdir()):
            if path.is_file():
                whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return whole.hexdigest()

    async def missing(self) -> dict[str, str]:
        """For its health: what the server has not been told."""
        return {"nats": "was not told of renewed certificates"} if self._digest() != self._loaded else {}


async def watch(renewals: Renewals, every: float, host: str, port: int) -> None:
    """Look every so many seconds until told to stop, and tell its health."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    health = HealthServer(renewals.missing)
    await health.start(host, port)
    try:
        while not stopping.is_set():
            await asyncio.to_thread(renewals.look)
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await stopping.wait()
    finally:
        await health.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m hanse_operations.bus.renewed", description="has a nats-server load renewed certificates"
    )
    parser.add_argument("--pid-file", type=Path, required=True, help="the server's pid_file")
    parser.add_argument("--certificates", type=Path, required=True, help="folder of its certificates and keys")
    parser.add_argument("--every", type=float, default=10.0, help="seconds from look to look")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=7778, help="port of /healthz and /readyz")
    given = parser.parse_args()
    configure_logging("bus-renewed")
    asyncio.run(watch(Renewals(given.pid_file, given.certificates), given.every, given.host, given.port))


if __name__ == "__main__":
    main()
