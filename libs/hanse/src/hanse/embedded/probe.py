"""`python -m hanse.embedded.probe STATE`: ends with 0 where all services of the hub in that folder are ready, for the
health checks of containers; it prints which are not."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from hanse.embedded.readiness import PORT_FILE, Readiness
from hanse.embedded.state import StateFolder
from hanse_fabric.errors import HanseError

_WITH_TLS = ("coordinator", "console")
"""Services whose health port is spoken to by TLS where the hub is for other machines."""


async def not_ready(root: Path) -> list[str]:
    """What is not as it must be; empty: nothing."""
    try:
        running = [str(name) for name in json.loads((root / "processes.json").read_text())]
        ports = {name: _port(root, name) for name in running}
        public = (StateFolder(root).url() or "").startswith("https:")
    except (OSError, ValueError, HanseError) as error:
        return [f"{root}: no hub runs there ({error})"]
    services = {name: port for name, port in ports.items() if port}
    found = await asyncio.gather(
        *(Readiness(port, tls=public and name.startswith(_WITH_TLS)).ask() for name, port in services.items())
    )
    away = [] if "coordinator" in services else ["coordinator: not running"]
    return away + [f"{name}: not ready" for name, ready in zip(services, found, strict=True) if not ready]


def _port(root: Path, name: str) -> int | None:
    """A service's health port; servers have none."""
    path = root / f"{name}{PORT_FILE}"
    return int(json.loads(path.read_text())) if path.exists() else None


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    (folder,) = arguments
    missing = asyncio.run(not_ready(Path(folder)))
    for line in missing:
        print(line, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
