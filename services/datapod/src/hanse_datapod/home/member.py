"""Whether a folder is the home of a site that has joined: what commands ask before they write into it."""

from __future__ import annotations

from pathlib import Path

from hanse_datapod.home.left import left
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site import SiteIdentity, load_identity


def member(home: Path) -> SiteIdentity:
    """Who the site of this home is. Nothing is written.

    Raises:
        HanseError: NOT_FOUND where nobody has joined with it, or its site has left; as `load_identity`.
    """
    identity = load_identity(home)
    if identity is None:
        raise no_member(home)
    return identity


def no_member(home: Path) -> HanseError:
    """That it is no home of a member, and how it becomes one."""
    ended = left(home)
    why = f"has left project {ended.project} on {ended.at:%Y-%m-%d}" if ended else "has not joined a project"
    return HanseError(
        ErrorCode.NOT_FOUND, f"{home}: this site {why}",
        hint="join with: hanse site join URL TOKEN --home DIR (python -m hanse_datapod join --hub URL --token TOKEN "
        "--home DIR); or give the --home that it has joined with",
    )  # fmt: skip
