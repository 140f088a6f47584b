"""What must be readable by its owner alone: the embedded hub's key and authority, a site's keys."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hanse.cli.checks.finding import Finding, finding
from hanse.embedded.state import StateFolder
from hanse.hub_here import DEFAULT_STATE
from hanse_fabric.errors import HanseError
from hanse_site.identity import BUS_CREDS, BUS_SEED, RECORD, SIGNING_KEY, SiteIdentity, load_identity


def check_private() -> Iterator[Finding]:
    """Check the secrets of the embedded hub of this folder, if there is one."""
    state = StateFolder(DEFAULT_STATE)
    if state.key_file.exists():
        yield _private("hub's secrets", [state.key_file, state.compensator_key, *_files(state.authority)])


def check_site(home: Path) -> tuple[Finding, SiteIdentity | None]:
    """Check a site's identity; it comes with the finding, where there is one."""
    try:
        identity = load_identity(home)
    except HanseError as error:
        return Finding("site", False, error.message, error.hint or "join again in another folder"), None
    if identity is None:
        return Finding("site", False, f"{home} holds no identity", "join first: hanse site join"), None
    return _private("site's secrets", [home / name for name in (SIGNING_KEY, BUS_SEED, BUS_CREDS, RECORD)]), identity


def _private(check: str, files: Iterable[Path]) -> Finding:
    present = [path for path in files if path.exists()]
    open_to_others = [str(path) for path in present if stat.S_IMODE(path.stat().st_mode) & 0o077]
    found = f"others may read {', '.join(open_to_others)}" if open_to_others else f"{len(present)} files, yours alone"
    return finding(check, not open_to_others, found, f"chmod 600 {' '.join(open_to_others)}")


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
