"""A person at a terminal is shown what a project asks, and says whether the site agrees."""

from __future__ import annotations

import sys
from pathlib import Path

from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site.joining import preview
from hanse_site.showing import preview_lines

_HUB_S = 30.0


async def agreed_by_asking(hub: str, token: str, ca: Path | None) -> str:
    """The digest of the terms that the person agrees to; empty where the project has none.

    Raises:
        HanseError: CONFLICT where nobody is at a terminal, or the person does not agree; what `preview` raises, but
            for hubs of release 0.1.0, which know no terms.
    """
    try:
        shown = await preview(hub.rstrip("/"), token, ca, timeout=_HUB_S, clock=SYSTEM_CLOCK)
    except HanseError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return ""
        raise
    if shown.terms is None:
        return ""
    print("\n".join(preview_lines(shown)))
    if not wants("Join, and agree to these terms"):
        raise HanseError(
            ErrorCode.CONFLICT, f"project {shown.project} has terms, and nobody has agreed to them; nothing was joined",
            hint=f"to agree without being asked: --accept {shown.terms.digest}",
        )  # fmt: skip
    return shown.terms.digest


def wants(what: str) -> bool:
    """Whether a person at the terminal says yes; no where there is none."""
    return sys.stdin.isatty() and input(f"{what}? [yes/no] ").strip().lower() in ("y", "yes")
