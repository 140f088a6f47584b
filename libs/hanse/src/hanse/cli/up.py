"""`hanse up`: the embedded hub, until ctrl-C."""

from __future__ import annotations

import asyncio
import json as json_module
import signal
from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import DEFAULT_STATE, Json


def up(
    state: Annotated[Path, typer.Option(help="The hub's folder; a second start finds everything again.")] = (
        DEFAULT_STATE
    ),
    port: Annotated[int | None, typer.Option(help="The HTTP API's port; default: chosen once, then kept.")] = None,
    aggregators: Annotated[int, typer.Option(min=1, help="Aggregator replicas.")] = 1,
    coordinators: Annotated[int, typer.Option(min=1, help="Coordinator replicas.")] = 1,
    json: Json = False,
) -> None:
    """Start a hub on this machine: real servers and all services, on loopback."""
    asyncio.run(_up(state, port, aggregators, coordinators, json))


async def _up(state: Path, port: int | None, aggregators: int, coordinators: int, json: bool) -> None:
    from hanse.embedded.hub import EmbeddedHub

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with EmbeddedHub(state, http_port=port, aggregators=aggregators, coordinators=coordinators) as hub:
        if json:
            print(json_module.dumps({"url": hub.url, "key_file": str(hub.state.key_file)}), flush=True)
        else:
            print(f"The hub is at {hub.url}; its operator's key is in {hub.state.key_file}.")
            print(f"State, logs and processes: {state}. `hanse` commands in this folder find it by themselves.")
            print("Ctrl-C stops it.", flush=True)
        await stop.wait()
        if not json:
            print("\nStopping ...")
