"""`hanse up`: the embedded hub, until ctrl-C."""

from __future__ import annotations

import asyncio
import json as json_module
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hanse.cli.connection import Json
from hanse.embedded import check_installed
from hanse.embedded.public import EVERYWHERE, Public
from hanse.hub_here import DEFAULT_STATE
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tls import fingerprint

if TYPE_CHECKING:
    from hanse.embedded.hub import EmbeddedHub

_T = TypeVar("_T")


def up(
    state: Annotated[Path, typer.Option(help="The hub's folder; a second start finds everything again.")] = (
        DEFAULT_STATE
    ),
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The HTTP API's port; default: chosen once, then kept.")
    ] = None,
    console_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The console's port; chosen and kept likewise.")
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
    bus_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="With --public: the bus's port for other machines.")
    ] = None,
    store_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="With --public: the store's port for other machines.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="With --public, behind a front: the HTTP API's address there, https://...")
    ] = None,
    bus_url: Annotated[str | None, typer.Option(help="Behind a front: the bus's address there, wss://...")] = None,
    store_url: Annotated[
        str | None, typer.Option(help="Behind a front: the store's address there, https://...")
    ] = None,
    console_url: Annotated[
        str | None, typer.Option(help="Behind a front: the console's address there, https://...")
    ] = None,
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Print a link by which the first person signs in at the console.")
    ] = True,
    json: Json = False,
) -> None:
    """Start a hub on this machine: real servers and all services, on loopback or for other machines."""
    check_installed()
    from hanse.embedded.hub import EmbeddedHub

    beyond = {
        "--bind": bind, "--cert": cert, "--key": key, "--ca": ca, "--bus-port": bus_port, "--store-port": store_port,
        "--url": url, "--bus-url": bus_url, "--store-url": store_url, "--console-url": console_url,
    }  # fmt: skip
    shown = None
    if public is not None:
        told = {"http": url, "public bus": bus_url, "public store": store_url, "console": console_url}
        shown = Public(public, bind or EVERYWHERE, cert, key, ca, _given(told))
    else:
        _refuse(beyond)
    hub = EmbeddedHub(
        state, http_port=port, aggregators=aggregators, coordinators=coordinators, compensators=compensators,
        ports=_given({"public bus": bus_port, "public store": store_port, "console": console_port}),
        end_former_tokens=end_former_tokens, public=shown, console=True,
    )  # fmt: skip
    asyncio.run(_until_stopped(hub, state, link=link, json=json))


def _given(options: Mapping[str, _T | None]) -> dict[str, _T]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(beyond: Mapping[str, object]) -> None:
    """Refuse what is for other machines where the hub is for this one alone."""
    for option, value in beyond.items():
        if value is not None:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"{option}: it is for other machines, and --public is not given",
                hint="give --public NAME, by which they reach this one",
            )  # fmt: skip


async def _until_stopped(hub: EmbeddedHub, state: Path, *, link: bool, json: bool) -> None:
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

            first = await first_link(hub.direct_url, hub.api_key, hub.ca) if link else None
            _announce(hub, state, first, json)
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
            told |= {"ca": hub.ca and str(hub.ca), "ports": hub.public_ports, "addresses": hub.addresses}
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
        bus, store = hub.addresses["public bus"], hub.addresses["public store"]
        print(f"They are told of the bus at {bus}, and of the store at {store}.")
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
