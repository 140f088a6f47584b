"""One-time links into the window. Whoever may write into the home makes one; whoever has it enters once.

A link's secret stands behind the `#`, which browsers send to nobody; the page shows it to the datapod and forgets it.
The home keeps its SHA-256, as the name of a file. Who removes that file has used the link: nobody does so twice.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from hanse_datapod.home.now import runs
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError

ADDRESS, FOLDER = "window.json", "window-links"
LASTS_S = 600
_SECRET_BYTES = 32


def announce(home: Path, address: str) -> None:
    """Say in the home where its window is.

    Raises:
        HanseError: NO_SPACE.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(home / ADDRESS, json.dumps({"address": address}))


def announced(home: Path) -> str:
    """Where the window of a running datapod is.

    Raises:
        HanseError: UNAVAILABLE where no datapod runs with this home, or it has no window.
    """
    try:
        address = json.loads((home / ADDRESS).read_bytes())["address"]
    except (OSError, ValueError, KeyError, TypeError):
        address = ""
    if not runs(home):
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"{home}: no datapod runs with this home", hint="start it: hanse site run --home DIR"
        )
    if not address:
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"{home}: its datapod has no window",
            hint="see its log; HANSE_WINDOW says where the window is, or that there is none",
        )  # fmt: skip
    return str(address)


def make_link(home: Path, address: str, clock: Clock = SYSTEM_CLOCK) -> str:
    """A link into the window at `address`, good once and for LASTS_S seconds.

    Raises:
        HanseError: NO_SPACE.
    """
    folder = home / FOLDER
    folder.mkdir(exist_ok=True, mode=0o700)
    now = clock.now()
    for old in folder.iterdir():
        if not _is_good(old, now):
            old.unlink(missing_ok=True)
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    write_durably(folder / _name(secret), f"{now.timestamp() + LASTS_S}")
    return f"{address.rstrip('/')}/#enter={secret}"


def use_link(home: Path, secret: str, now: datetime) -> bool:
    """Whether a link with this secret was made for this home, and is good. It is used up then."""
    file = home / FOLDER / _name(secret)
    good = _is_good(file, now)
    try:
        file.unlink()
    except OSError:
        return False  # there is none, or another request has used it
    return good


def forget(home: Path) -> None:
    """Say no longer where the window is: it is closed."""
    with suppress(OSError):
        (home / ADDRESS).unlink(missing_ok=True)


def _name(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _is_good(file: Path, now: datetime) -> bool:
    try:
        return now.timestamp() < float(file.read_text())
    except (OSError, ValueError):
        return False
