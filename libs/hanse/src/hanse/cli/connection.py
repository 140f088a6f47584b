"""Which hub the commands talk to: options, then the environment, then the embedded hub of this folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import hanse
from hanse.embedded.state import StateFolder
from hanse.hub import Hub
from hanse_fabric.errors import ErrorCode, HanseError

DEFAULT_STATE = Path(".hanse/hub")

Url = Annotated[str | None, typer.Option("--url", envvar="HANSE_URL", help="The hub's address.")]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="HANSE_API_KEY", help="An API key; better given by the environment.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


def hub(url: str | None, api_key: str | None) -> Hub:
    """Connect as the options say.

    Raises:
        HanseError: INVALID_INPUT when there is nothing to connect to.
    """
    local = StateFolder(DEFAULT_STATE)
    address = url or local.url()
    if address is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            "--url: no hub was named, and no embedded hub was ever started in this folder",
            hint="give --url or HANSE_URL, or start one with `hanse up`",
        )
    ca = os.environ.get("HANSE_CA")
    return hanse.connect(address, api_key=api_key or (None if url else local.api_key()), ca=ca)
