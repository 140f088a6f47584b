"""One-time links into the window. Whoever may write into the home makes one; whoever has it enters once.

A link's secret stands behind the `#`, which browsers send to nobody; the page shows it to the datapod and forgets it.
The home keeps its SHA-256, as the name of a file. Who removes that file has used the link: nobody does so twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from hanse_datapod.home.now import runs
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import space_errors, try_lock, write_all, write_durably
from hanse_fabric.errors import ErrorCode, HanseError

ADDRESS, FOLDER = "window.json", "window-links"
LASTS_S = 600
_SECRET_BYTES = 32


@contextmanager
def announcement(home: Path) -> Iterator[Callable[[str], None]]:
    """What is called with the address of this process's window, once it is open. No other announces one here inside.

    The file is locked for as long as the process lives, and so a killed one announces nothing: what listens at its
    address later may be anybody's. Links of before are good no more.

    Raises:
        HanseError: LOCKED where another process announces its window; NO_SPACE, by what is called, too.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with space_errors(home):
        descriptor = os.open(home / ADDRESS, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not try_lock(descriptor):
            raise HanseError(ErrorCode.LOCKED, f"{home}: another process has the window of this home")
        os.ftruncate(descriptor, 0)
        for old in _links(home):
            old.unlink(missing_ok=True)

        def announce(address: str) -> None:
            with space_errors(home):
                write_all(descriptor, json.dumps({"address": address}).encode())

        yield announce
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def announced(home: Path) -> str:
    """Where the window of a running datapod is.

    Raises:
        HanseError: UNAVAILABLE where no datapod runs with this home, or it has no window.
    """
    if not runs(home):
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"{home}: no datapod runs with this home", hint="start it: hanse site run --home DIR"
        )
    try:
        with (home / ADDRESS).open("rb") as file:
            lives = not try_lock(file.fileno(), shared=True)
            address = json.loads(file.read())["address"] if lives else ""
    except (OSError, ValueError, KeyError, TypeError):
        address = ""
    if not address:
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"{home}: its datapod has no window",
            hint="see its log; HANSE_WINDOW says where the window is, or that there is none",
        )  # fmt: skip
    return str(address)


def make_link(homes: Sequence[Path], address: str, clock: Clock = SYSTEM_CLOCK) -> str:
    """A link into the window at `address` for these homes of it alone, good once and for LASTS_S seconds.

    Raises:
        HanseError: NO_SPACE.
    """
    now, secret = clock.now(), secrets.token_urlsafe(_SECRET_BYTES)
    for home in homes:
        for old in _links(home):
            if not _is_good(old, now):
                old.unlink(missing_ok=True)
        (home / FOLDER).mkdir(exist_ok=True, mode=0o700)
        write_durably(home / FOLDER / _name(secret), f"{now.timestamp() + LASTS_S}")
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


def _links(home: Path) -> list[Path]:
    try:
        return list((home / FOLDER).iterdir())
    except FileNotFoundError:
        return []


def _name(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _is_good(file: Path, now: datetime) -> bool:
    try:
        return now.timestamp() < float(file.read_text())
    except (OSError, ValueError):
        return False
