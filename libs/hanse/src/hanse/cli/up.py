"""`hanse up`: the embedded hub, until ctrl-C."""

from __future__ import annotations

import asyncio
import json as json_module
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hanse.cli.connection import Json
from hanse.embedded import check_installed
from hanse.embedded.public import EVERYWHERE, Public
from hanse.hub_here import DEFAULT_STATE
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tls import fingerprint

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
    public: Annotated[
        str | None, typer.Option(help="Other machines may use it, by this name or address of this one; over TLS alone.")
    ] = None,
    bind: Annotated[str | None, typer.Option(help="With --public: the address to listen on; default: all.")] = None,
    cert: Annotated[
        Path | None, typer.Option(help="With --public: a certificate (PEM) for it; default: the hub makes its own.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")] = None,
    ca: Annotated[Path | None, typer.Option(help="Who signed the certificate, if systems do not know it.")] = None,
    json: Json = False,
) -> None:
    """Start a hub on this machine: real servers and all services, on loopback or for other machines."""
    check_installed()
    from hanse.embedded.hub import EmbeddedHub

    hub = EmbeddedHub(
        state, http_port=port, aggregators=aggregators, coordinators=coordinators, compensators=compensators,
        end_former_tokens=end_former_tokens, public=_public(public, bind, cert, key, ca), console=True,
    )  # fmt: skip
    asyncio.run(_until_stopped(hub, state, json))


def _public(host: str | None, bind: str | None, cert: Path | None, key: Path | None, ca: Path | None) -> Public | None:
    if host is not None:
        return Public(host, bind or EVERYWHERE, cert, key, ca)
    for option, value in {"--bind": bind, "--cert": cert, "--key": key, "--ca": ca}.items():
        if value is not None:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"{option}: it is for other machines, and --public is not given",
                hint="give --public NAME, by which they reach this one",
            )  # fmt: skip
    return None


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
            from hanse.embedded.first_person import first_link

            _announce(hub, state, await first_link(hub.url, hub.api_key, hub.ca), json)
        await stopping
    finally:
        await hub.__aexit__(None, None, None)


def _announce(hub: EmbeddedHub, state: Path, link: str | None, json: bool) -> None:
    if json:
        told: dict[str, Any] = {
            "url": hub.url,
            "key_file": str(hub.state.key_file),
            "compensator_key": hub.compensator_key,
            "console": hub.console_url,
            "console_link": link,
        }
        if hub.public_ports:
            told |= {"ca": hub.ca and str(hub.ca), "ports": hub.public_ports}
        print(json_module.dumps(told), flush=True)
        return
    print(f"The hub is at {hub.url}; its operator's key is in {hub.state.key_file}.")
    print(f"Its console, for browsers: {hub.console_url}")
    if link is not None:
        print(f"Whoever opens this link first, once, chooses the operator's password there: {link}")
    print(f"The compensator's public key, for the sites' policies: {hub.compensator_key}")
    if hub.public_ports:
        needed = ", ".join(f"{port} ({name})" for name, port in hub.public_ports.items())
        print(f"Other machines reach it over TLS at the ports {needed}; open these.")
        if hub.ca is not None:
            print(f"Its certificate's authority: {hub.ca} ({fingerprint(hub.ca.read_text())}).")
        print("`hanse project invite PROJECT SITE` prints the line by which a site joins, with all that it needs.")
    print(f"State, logs and processes: {state}.")
    if state.absolute() == DEFAULT_STATE.absolute():
        print("`hanse` commands and `hanse.connect()` in this folder find it by themselves.")
    else:
        ca = f" HANSE_CA={hub.ca}" if hub.ca else ""
        print(f'For `hanse` commands: export HANSE_URL={hub.url}{ca} HANSE_API_KEY="$(cat {hub.state.key_file})"')
    print("Ctrl-C stops it.", flush=True)
