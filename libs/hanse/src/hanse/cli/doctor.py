"""`hanse doctor`: is everything here that Hanse needs, and what to do where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hanse.cli.checks.finding import Finding
from hanse.cli.connection import ApiKey, Chosen, Json, Url, chosen_hub
from hanse.cli.output import emit_json, emit_table
from hanse_fabric.errors import ErrorCode, HanseError


def doctor(
    folder: Annotated[Path, typer.Option(help="The folder whose disk and permissions are checked.")] = Path(),
    home: Annotated[Path | None, typer.Option(help="A site's folder: its files, and the way to its hub.")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Check versions, disk, permissions, clocks, and the way to the hub and its bus; say what to do."""
    from hanse.cli.checks.hub import check_hub
    from hanse.cli.checks.machine import check_machine
    from hanse.cli.checks.private import check_private, check_site

    findings, identity = [*check_machine(folder), *check_private()], None
    if home is not None:
        found, identity = check_site(home)
        findings.append(found)
    try:
        # The site's folder names the site's hub, and has the site's key for it: no other is sent there unasked.
        known = None if url or identity is None else Chosen.of_site(identity, api_key)
        findings.extend(check_hub(known or chosen_hub(url, api_key)))
    except HanseError as error:
        findings.append(Finding("hub", False, error.message, error.hint))
    if json:
        emit_json([finding.as_json() for finding in findings])
    else:
        rows = [(f.check, "well" if f.well else "NOT WELL", f.found, f.advice) for f in findings]
        emit_table("Checks", ("check", "state", "found", "what to do"), rows)
    unwell = [finding.check for finding in findings if not finding.well]
    if unwell:
        raise HanseError(ErrorCode.UNAVAILABLE, f"not well: {', '.join(unwell)}")
