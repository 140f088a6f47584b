"""`python -m hanse_operations.bus.exporter`: one nats-server's state as metrics, beside it in its pod.

NATS has no Prometheus endpoint of its own; this asks its monitoring port when it is asked, and keeps nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from datetime import datetime
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.health import HealthServer
from hanse_fabric.telemetry import configure_logging
from hanse_fabric.telemetry.catalogue import (
    BUS_BYTES,
    BUS_CONNECTIONS,
    BUS_LEADER,
    BUS_SLOW,
    BUS_STORAGE,
    BUS_STORAGE_LIMIT,
    BUS_UP,
    CERTIFICATE,
)

ASK_S = 3.0
_LOG = logging.getLogger(__name__)


class BusExporter:
    """Reads /varz and /jsz of a nats-server.

    Args:
        url: of its monitoring port, such as http://127.0.0.1:8222.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session: ClientSession | None = None

    async def missing(self) -> dict[str, str]:
        """Ask the server, and set the gauges; what is missing is the server itself."""
        try:
            general, stored = await self._ask("varz"), await self._ask("jsz")
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            _LOG.debug("%s does not answer: %s", self._url, error)
            BUS_UP.set(0)
            return {"nats": "does not answer"}
        BUS_UP.set(1)
        set_gauges(general, stored)
        return {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _ask(self, what: str) -> dict[str, Any]:
        if self._session is None:
            self._session = ClientSession(timeout=ClientTimeout(total=ASK_S))
        async with self._session.get(f"{self._url}/{what}") as answer:
            answer.raise_for_status()
            body = await answer.json()
        if not isinstance(body, dict):
            raise ValueError(f"/{what}: {type(body).__name__}, an object was expected")
        return body


def set_gauges(general: dict[str, Any], stored: dict[str, Any]) -> None:
    """Set the gauges from the bodies of /varz and /jsz."""
    BUS_CONNECTIONS.set(float(general.get("connections", 0)))
    BUS_SLOW.set(float(general.get("slow_consumers", 0)))
    BUS_BYTES.set(float(general.get("in_bytes", 0)), direction="in")
    BUS_BYTES.set(float(general.get("out_bytes", 0)), direction="out")
    BUS_STORAGE.set(float(stored.get("storage", 0)))
    BUS_STORAGE_LIMIT.set(float((stored.get("config") or {}).get("max_storage", 0)))
    expires = general.get("tls_cert_not_after")  # absent without TLS
    if expires:
        left = datetime.fromisoformat(str(expires)).timestamp() - SYSTEM_CLOCK.now().timestamp()
        CERTIFICATE.set(left, service="nats", certificate="server")
    cluster = stored.get("meta_cluster")
    # A server alone leads itself.
    BUS_LEADER.set(1 if cluster is None or cluster.get("leader") else 0)


async def serve(nats: str, host: str, port: int) -> None:
    """Answer /metrics until told to stop."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    exporter = BusExporter(nats)
    health = HealthServer(exporter.missing)
    await health.start(host, port)
    _LOG.info("serving", extra={"nats": nats, "port": health.port})
    try:
        await stopping.wait()
    finally:
        await health.stop()
        await exporter.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m hanse_operations.bus.exporter", description="one nats-server as metrics"
    )
    parser.add_argument("--nats", default="http://127.0.0.1:8222", help="monitoring port of the nats-server")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=7777, help="port of /metrics, /healthz and /readyz")
    given = parser.parse_args()
    configure_logging("bus-exporter")
    asyncio.run(serve(given.nats, given.host, given.port))


if __name__ == "__main__":
    main()
