"""`python -m hanse_operations leaf`: a folder from which a nats-server runs as a leaf node of the hub's bus."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import KEY_KINDS
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.names import HUB_REGION
from hanse_operations.bus.server import LeafRemote, ServerTls, write_server_config


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
) -> Path:
    """Write configuration and credentials to `folder`, which must lie where the server will run.

    Args:
        authority: the hub's keys, as files; none of them is copied.
        urls: the hub's listeners for leaf nodes, such as `nats-leaf://hub.example:7422`.
        name: of this server among the hub's leaf nodes.
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
    missing = [f"{key}.seed" for key in KEY_KINDS if not (authority / f"{key}.seed").exists()]
    if missing:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"authority {authority}: {', '.join(missing)} not there",
            hint="give a folder with the files of the hub's Secret authority",
        )
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    keys = BusAuthority(authority)
    if region not in keys.regions:
        raise invalid("region", region, f"one of {', '.join(keys.regions)}")
    own, system = (
        Path(shutil.copy(each, folder)) for each in (keys.leaf_credentials(region), keys.leaf_system_credentials())
    )
    remote = LeafRemote(urls, own, system_credentials=system, name=name, region=region, ca=ca and ca.absolute())
    everywhere = "0.0.0.0"  # noqa: S104 - sites of the region are to reach it
    return write_server_config(
        folder, keys, host=everywhere, port=port, tls=tls, websocket_port=websocket_port, leaf=remote,
        monitoring_port=monitoring_port,
    )  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser("leaf", help="configuration and credentials of a leaf node (docs/scale.md)")
    parser.add_argument("--authority", type=Path, required=True, help="folder with the files of the Secret authority")
    parser.add_argument("--hub", required=True, help="nats-leaf://host:7422 of the hub; several: by commas")
    parser.add_argument("--ca", type=Path, help="PEM file of the CA of the hub's listener for leaf nodes")
    parser.add_argument("--name", default="hanse-leaf", help="its name: another for each leaf node")
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
        ca=arguments.ca, tls=tls,
    )  # fmt: skip
    print(f"nats-server -c {config}")
