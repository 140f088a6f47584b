"""Which hub the commands talk to: options, then the environment, then the embedded hub of this folder.

A key of the environment goes to the address of the environment or of an option, and never to one that a folder names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

import hanse
from hanse.hub_here import hub_here
from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse.hub import Hub
    from hanse_site.identity import SiteIdentity

Url = Annotated[str | None, typer.Option("--url", envvar="HANSE_URL", help="The hub's address.")]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", help="An API key; better given by HANSE_API_KEY, beside --url or HANSE_URL.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A hub to talk to."""

    url: str
    api_key: str | None
    ca: Path | None = None

    @classmethod
    def of_site(cls, identity: SiteIdentity, api_key: str | None) -> Self:
        """The hub that a site's folder names, with the site's key where none is given."""
        return cls(identity.record.hub, api_key or identity.record.api_key or None, identity.hub_ca or _ca())

    def connect(self, *, patience: float = 10.0) -> Hub:
        return hanse.connect(self.url, api_key=self.api_key, ca=self.ca, patience=patience)


def chosen_hub(url: str | None, api_key: str | None) -> Chosen | None:
    """The hub that the options, the environment or this folder name; None when none does.

    Raises:
        HanseError: as `hub_here`.
    """
    if url:
        return Chosen(url, api_key or os.environ.get("HANSE_API_KEY"), _ca())
    local = hub_here()
    return Chosen(local.url, api_key or local.api_key, local.ca) if local else None


def hub(url: str | None, api_key: str | None) -> Hub:
    """Connect as the options say.

    Raises:
        HanseError: INVALID_INPUT when there is nothing to connect to; else as `chosen_hub`.
    """
    chosen = chosen_hub(url, api_key)
    if chosen is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            "--url: no hub was named, and no embedded hub was ever started in this folder",
            hint="give --url or HANSE_URL, or start one with `hanse up`",
        )
    return chosen.connect()


def _ca() -> Path | None:
    named = os.environ.get("HANSE_CA")
    return Path(named) if named else None
