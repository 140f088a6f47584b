"""Which hub the commands talk to: options, then the environment, then the embedded hub of this folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import hanse
from hanse.hub import Hub
from hanse.hub_here import hub_here
from hanse_fabric.errors import ErrorCode, HanseError

Url = Annotated[str | None, typer.Option("--url", envvar="HANSE_URL", help="The hub's address.")]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="HANSE_API_KEY", help="An API key; better given by the environment.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A hub to talk to."""

    url: str
    api_key: str | None
    ca: Path | None = None

    def connect(self, *, patience: float = 10.0) -> Hub:
        ca = os.environ.get("HANSE_CA") or self.ca
        return hanse.connect(self.url, api_key=self.api_key, ca=ca, patience=patience)


def chosen_hub(url: str | None, api_key: str | None) -> Chosen | None:
    """The hub that the options or this folder name; None when neither does."""
    if url:
        return Chosen(url, api_key)
    local = hub_here()
    return Chosen(local.url, api_key or local.api_key, local.ca) if local else None


def hub(url: str | None, api_key: str | None) -> Hub:
    """Connect as the options say.

    Raises:
        HanseError: INVALID_INPUT when there is nothing to connect to.
    """
    chosen = chosen_hub(url, api_key)
    if chosen is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            "--url: no hub was named, and no embedded hub was ever started in this folder",
            hint="give --url or HANSE_URL, or start one with `hanse up`",
        )
    return chosen.connect()
