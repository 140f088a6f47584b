"""The hub that `hanse up` runs in this folder: commands and `hanse.connect()` find it by themselves.

Whoever works in a folder need not have made it: it may be a clone, an unpacked archive, or another user's. So a folder
names a hub only if it is this user's, and while that hub runs: its process holds the lock in the folder, which no copy
does. Keys of the environment are for the address of the environment, and never go to one that a folder names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hanse.embedded.state import StateFolder
from hanse_fabric.durable import locks
from hanse_fabric.errors import ErrorCode, HanseError

DEFAULT_STATE = Path(".hanse/hub")


@dataclass(frozen=True, slots=True)
class HubHere:
    """Its address, its operator's key, and the authority of its certificate, where systems do not know it."""

    url: str
    api_key: str | None
    ca: Path | None


def hub_here() -> HubHere | None:
    """The hub of the working folder; None where none was ever started, or on a system on which no hub runs.

    Raises:
        HanseError: UNAVAILABLE where it does not run; INVALID_INPUT where the folder is not this user's alone, or what
            the hub left there cannot be read.
    """
    state = StateFolder(DEFAULT_STATE)
    if not state.root.is_dir() or not _hubs_run_here():
        return None
    address = state.url()
    if not address:
        return None
    state.check_own()
    if not state.is_held():
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"no hub runs in this folder, though {DEFAULT_STATE} says that one did",
            hint="start it with `hanse up`, or name another: --url, or HANSE_URL and HANSE_API_KEY",
        )
    return HubHere(address, state.api_key(), state.ca())


def _hubs_run_here() -> bool:
    try:
        locks()
    except HanseError:
        return False
    return True
