"""`hanse hub`: a hub as its operator sees it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.connection import ApiKey, Json, Url, hub
from hanse.cli.output import emit_json
from hanse_fabric.text_files import read_text

app = typer.Typer(no_args_is_help=True, help="A hub: try it, and see what it could not read.")


@app.command("test")
def try_it(
    url: Url = None,
    api_key: ApiKey = None,
    key_file: Annotated[
        Path | None, typer.Option(help="A file with the operator's API key; or HANSE_API_KEY_FILE, beside an address.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for all of it.")] = 180.0,
    json: Json = False,
) -> None:
    """Train a tiny model through the hub with two sites in this process, and check it to the bit."""
    from hanse.selftest import try_hub

    if key_file is None and url and (named := os.environ.get("HANSE_API_KEY_FILE")):
        key_file = Path(named)
    if key_file is not None:
        api_key = read_text(key_file, "API key file").strip()
    told: list[str] = []

    def say(what: str) -> None:
        told.append(what)
        if not json:
            print(f"ok: {what}", flush=True)

    with hub(url, api_key) as connection:
        try_hub(connection, timeout=timeout, say=say)
    if json:
        emit_json({"well": True, "done": told})
    else:
        print("The hub trains.")


@app.command("revoke-leaf")
def revoke_leaf(
    region: str,
    key: Annotated[str, typer.Argument(help="The leaf node's public key: `python -m hanse_operations leaf-key`.")],
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """End a leaf node's key, for good: it is cut off at once. Other leaf nodes of its region go on."""
    with hub(url, api_key) as connection:
        connected = connection.revoke_leaf(region, key)
    if json:
        emit_json({"region": region, "key": key, "connected": connected})
        return
    print(f"{key} is void. Leaf nodes of {region} that are connected: {', '.join(connected) or 'none'}.")
    print("If the one you meant is among them, the key was not its.")


@app.command()
def unreadable(url: Url = None, api_key: ApiKey = None, json: Json = False) -> None:
    """List the messages that were set aside, and the records that are passed over, because they cannot be read."""
    with hub(url, api_key) as connection:
        found = connection.unreadable()
    if json:
        emit_json(found)
        return
    for each in found["records"]:
        print(f"record {each['subject']} (revision {each['revision']}): {each['reason']}")
    for each in found["messages"]:
        print(f"message of {each['at']} on {each['subject']} ({each['size']} bytes): {each['reason']}")
    if not found["records"] and not found["messages"]:
        print("The hub could read everything.")
