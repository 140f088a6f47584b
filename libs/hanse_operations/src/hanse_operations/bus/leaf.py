"""`python -m hanse_operations leaf`: a folder from which a nats-server runs as a leaf node of the hub's bus."""

from __future__ import annotations

import argparse
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import KEY_KINDS
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.names import HUB_REGION
from hanse_operations.bus.server import LeafRemote, ServerTls, WebSocketListener, write_server_config


def write_leaf(
    folder: Path,
    authority: Path,
    urls: list[str],
    *,
    name: str,
    port: int,
    region: str = HUB_REGION,
    websocket_port: int | None = None,
    monitoring_port: int | None = None,
    ca: Path | None = None,
    tls: ServerTls | None = None,
    key_number: int = 1,
) -> Path:
    """Write configuration and credentials to `folder`, which must lie where the server will run.

    Args:
        authority: the hub's keys, as files; none of them is copied.
        urls: the hub's listeners for leaf nodes, such as `nats-leaf://hub.example:7422`.
        name: of this server among the hub's leaf nodes. Its key is by this name.
        key_number: which of its keys: one more than the last that was revoked.
        region: whose sites connect there, and whose account alone it can reach.
        ca: PEM file of the CA of the hub's listeners; None: they speak no TLS, or the system knows their CA.
        tls: what sites are shown.

    Returns:
        The configuration's path.

    Raises:
        HanseError: INVALID_INPUT naming a key that is not there (a new one would be of another hub), or a URL.
    """
    for url in urls:
        if not url.startswith(("nats-leaf://", "tls://", "wss://")):
            raise invalid("hub", url, "nats-leaf://host:7422, tls:// or wss://")
    keys = _authority(authority, region)
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    own, system = folder / "leaf.creds", folder / "leaf-system.creds"
    for path, text in zip((own, system), keys.leaf_credentials(region, name, key_number), strict=True):
        write_durably(path, text)
    remote = LeafRemote(urls, own, system_credentials=system, name=name, region=region, ca=ca and ca.absolute())
    everywhere = "0.0.0.0"  # noqa: S104 - sites of the region are to reach it
    return write_server_config(
        folder, keys, host=everywhere, port=port, tls=tls, leaf=remote, monitoring_port=monitoring_port,
        websocket=None if websocket_port is None else WebSocketListener(everywhere, websocket_port, tls),
    )  # fmt: skip


def _authority(folder: Path, region: str) -> BusAuthority:
    """The hub's keys, of which none may be made here; INVALID_INPUT for a region that has none."""
    missing = [f"{key}.seed" for key in KEY_KINDS if not (folder / f"{key}.seed").exists()]
    if missing:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"authority {folder}: {', '.join(missing)} not there",
            hint="give a folder with the files of the hub's Secret authority",
        )
    keys = BusAuthority(folder)
    if region not in keys.regions:
        raise invalid("region", region, f"one of {', '.join(keys.regions)}")
    return keys


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser("leaf", help="configuration and credentials of a leaf node (docs/scale.md)")
    parser.add_argument("--authority", type=Path, required=True, help="folder with the files of the Secret authority")
    parser.add_argument("--hub", required=True, help="nats-leaf://host:7422 of the hub; several: by commas")
    parser.add_argument("--ca", type=Path, help="PEM file of the CA of the hub's listener for leaf nodes")
    parser.add_argument("--name", default="hanse-leaf", help="its name, and its key's: another for each leaf node")
    parser.add_argument("--key-number", type=int, default=1, help="which of its keys: 2 when the first was revoked")
    parser.add_argument("--region", default=HUB_REGION, help="whose sites connect there: another key for each region")
    parser.add_argument("--port", type=int, default=4222, help="where sites connect to")
    parser.add_argument("--websocket-port", type=int, help="where sites connect to that have only 443 (wss)")
    parser.add_argument("--monitoring-port", type=int, help="where NATS's own monitoring answers")
    parser.add_argument("--cert", type=Path, help="PEM certificate that sites are shown; with --key")
    parser.add_argument("--key", type=Path, help="its PEM key")
    parser.add_argument("--out", type=Path, required=True, help="the folder, at its place on the machine that runs it")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    if (arguments.cert is None) != (arguments.key is None):
        raise HanseError(ErrorCode.INVALID_INPUT, "--cert, --key: they belong together; only one is set")
    tls = None if arguments.cert is None else ServerTls(arguments.cert.absolute(), arguments.key.absolute())
    config = write_leaf(
        arguments.out, arguments.authority, arguments.hub.split(","), name=arguments.name, port=arguments.port,
        region=arguments.region, websocket_port=arguments.websocket_port, monitoring_port=arguments.monitoring_port,
        ca=arguments.ca, tls=tls, key_number=arguments.key_number,
    )  # fmt: skip
    print(f"nats-server -c {config}")


def add_key_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of `leaf-key`."""
    parser = commands.add_parser("leaf-key", help="a leaf node's public key, by which `hanse hub revoke-leaf` ends it")
    parser.add_argument("--authority", type=Path, required=True, help="folder with the files of the Secret authority")
    parser.add_argument("--region", default=HUB_REGION, help="whose sites connect there")
    parser.add_argument(
        "--name", default="", help="the leaf node's; none: the key that a region's shared, in folders of 0.1.0"
    )
    parser.add_argument("--key-number", type=int, default=1, help="which of its keys")
    parser.set_defaults(run=_print_key)


def _print_key(arguments: argparse.Namespace) -> None:
    keys = _authority(arguments.authority, arguments.region)
    print(keys.leaf_key(arguments.region, arguments.name, arguments.key_number))
