"""`python -m hanse_operations former-tokens`: ends the tokens, of the hub's own account, of release 0.1.0's sites."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tls import client_context
from hanse_operations.secrets.wanted import SINCE

_PATIENCE_S = 60.0


async def end_former_tokens(authority: Path, url: str, *, ca: Path | None = None) -> int:
    """Void what was issued before the services' credentials were all made anew; returns that moment (unix seconds).

    Args:
        authority: the files of the Secret authority.
        ca: PEM file of the CA that signed the bus's certificate.

    Raises:
        HanseError: INVALID_INPUT where the services' credentials were never made anew: they would be void, too;
            UNAVAILABLE when the servers do not confirm it.
    """
    written = authority / SINCE
    if not written.exists():
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"authority {authority}: {SINCE} is not there: the services would be cut off with the sites of before",
            hint="first: `python -m hanse_operations secrets --renew-credentials ...`, then restart all services",
        )
    since = int(written.read_text())
    tls = None if ca is None else client_context(ca)
    await BusAuthority(authority).end_tokens_of_before(since, url=url, timeout=_PATIENCE_S, tls=tls)
    return since


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "former-tokens", help="end the tokens that release 0.1.0 gave to sites (docs/operator.md)"
    )
    parser.add_argument("--authority", type=Path, required=True, help="folder with the files of the Secret authority")
    parser.add_argument("--url", required=True, help="address of the bus")
    parser.add_argument("--ca", type=Path, help="PEM file of the CA that signed the bus's certificate")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    since = asyncio.run(end_former_tokens(arguments.authority, arguments.url, ca=arguments.ca))
    print(f"void: every token of the hub's own account from before {since} (unix seconds)")
