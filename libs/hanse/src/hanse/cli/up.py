"""`hanse up`: the embedded hub, until ctrl-C."""

from __future__ import annotations

import asyncio
import json as json_module
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanse.cli.connection import DEFAULT_STATE, Json
from hanse.embedded import check_installed

if TYPE_CHECKING:
    from hanse.embedded.hub import EmbeddedHub


def up(
    state: Annotated[Path, typer.Option(help="The hub's folder; a second start finds everything again.")] = (
        DEFAULT_STATE
    ),
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The HTTP API's port; default: chosen once, then kept.")
    ] = None,
    aggregators: Annotated[int, typer.Option(min=1, help="Aggregator replicas.")] = 1,
    coordinators: Annotated[int, typer.Option(min=1, help="Coordinator replicas.")] = 1,
    compensators: Annotated[int, typer.Option(min=1, help="Compensator replicas.")] = 1,
    end_former_tokens: Annotated[
        bool, typer.Option("--end-former-tokens", help="End the tokens that release 0.1.0 gave to sites; once.")
    ] = False,
    json: Json = False,
) -> None:
    """Start a hub on this machine: real servers and all services, on loopback."""
    check_installed()
    from hanse.embedded.hub import EmbeddedHub

    hub = EmbeddedHub(
        state, http_port=port, aggregators=aggregators, coordinators=coordinators, compensators=compensators,
        end_former_tokens=end_former_tokens,
    )  # fmt: skip
    asyncio.run(_until_stopped(hub, state, json))


async def _until_stopped(hub: EmbeddedHub, state: Path, json: bool) -> None:
    """Serve until SIGINT or SIGTERM, which end a start that is under way, too."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    starting, stopping = loop.create_task(hub.__aenter__()), loop.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()  # it tidies up; but what is below may not heed it, and then the hub has started all the same
        await asyncio.wait({starting})
        if starting.cancelled() or starting.exception() is not None:
            return
    starting.result()
    try:
        if not stop.is_set():
            _announce(hub, state, json)
        await stopping
    finally:
        await hub.__aexit__(None, None, None)


def _announce(hub: EmbeddedHub, state: Path, json: bool) -> None:
    if json:
        told = {"url": hub.url, "key_file": str(hub.state.key_file), "compensator_key": hub.compensator_key}
        print(json_module.dumps(told), flush=True)
        return
    print(f"The hub is at {hub.url}; its operator's key is in {hub.state.key_file}.")
    print(f"The compensator's public key, for the sites' policies: {hub.compensator_key}")
    print(f"State, logs and processes: {state}.")
    if state.absolute() == DEFAULT_STATE.absolute():
        print("`hanse` commands in this folder find it by themselves.")
    else:
        print(f'For `hanse` commands: export HANSE_URL={hub.url} HANSE_API_KEY="$(cat {hub.state.key_file})"')
    print("Ctrl-C stops it.", flush=True)
