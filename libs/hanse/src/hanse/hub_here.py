"""The hub that `hanse up` has started in this folder: commands and `hanse.connect()` find it by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hanse.embedded.state import StateFolder

DEFAULT_STATE = Path(".hanse/hub")


@dataclass(frozen=True, slots=True)
class HubHere:
    """Its address, its operator's key, and the authority of its certificate, where systems do not know it."""

    url: str
    api_key: str | None
    ca: Path | None


def hub_here() -> HubHere | None:
    """The hub of the working folder; None where none was ever started.

    Raises:
        HanseError: INVALID_INPUT where what it left there cannot be read.
    """
    state = StateFolder(DEFAULT_STATE)
    address = state.url()
    return HubHere(address, state.api_key(), state.ca()) if address else None
