"""The end of a site's membership at the site: what is removed of its home, and what stays as its record.

What stays is the site's own: the log of what left, the privacy ledger (what was spent stays spent, whoever asks next),
the memory of masked works and of people in them, the terms that it agreed to, approvals of code, and what training
kept here (personal models). Nothing is removed that Hanse has not made.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from hanse_datapod.home import journal, now, pause
from hanse_datapod.home.folders import PAIRWISE
from hanse_datapod.privacy.shared_turns import FOLDER as TURNS
from hanse_datapod.privacy.shared_turns import SECRET
from hanse_datapod.window.links import ADDRESS, FOLDER
from hanse_fabric.durable import sync_folder, write_durably
from hanse_fabric.frozen import Frozen, Time
from hanse_site import SiteIdentity
from hanse_site.consent import ASKED
from hanse_site.identity import BOUND, BUS_CA, BUS_CREDS, BUS_SEED, HUB_CA, RECORD, SIGNING_KEY, STORE_CA
from hanse_site.task_files import DELTAS, RECEIVED

FILE = "left.json"
KEYS = (SIGNING_KEY, BUS_SEED, BUS_CREDS, SECRET, PAIRWISE)
"""What is void or secret from then on, and is removed first."""
OF_THE_HUB = (*RECEIVED, DELTAS, ASKED, BUS_CA, STORE_CA, HUB_CA)
OF_TASKS = ("work", "made", "studies", TURNS, journal.FILE, BOUND, now.FILE, pause.FILE, ADDRESS, FOLDER)


class Left(Frozen):
    """That this home's site has left a project. `told`: whether the hub has been told by the site."""

    hub: str
    project: str
    participant: str
    joined_at: Time
    at: Time
    reason: str = ""
    told: bool = True

    def of(self, identity: SiteIdentity) -> bool:
        """Whether it is the end of this very membership: a home may have joined again since."""
        record, own = identity.record, (self.project, self.participant, self.joined_at)
        return own == (record.project, record.participant, record.joined_at)


def left(home: Path) -> Left | None:
    """The membership that ended here last; None: none did, or the file cannot be read."""
    try:
        return Left.model_validate_json((home / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def note_left(identity: SiteIdentity, at: datetime, reason: str, *, told: bool) -> Left:
    """Write down that the membership has ended; it is on the disk when this returns.

    Raises:
        HanseError: NO_SPACE.
    """
    record = identity.record
    made = Left(
        hub=record.hub, project=record.project, participant=record.participant, joined_at=record.joined_at, at=at,
        reason=reason, told=told,
    )  # fmt: skip
    write_durably(identity.home / FILE, made.model_dump_json())
    return made


def remove_membership(home: Path) -> list[str]:
    """Remove what only a member needs, its record last, so that whoever is killed in it may do it again; the names of
    what was removed."""
    removed = []
    for name in (*KEYS, *OF_THE_HUB, *OF_TASKS, RECORD):
        path = home / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or path.exists():
            path.unlink()
        else:
            continue
        removed.append(name)
    sync_folder(home)
    return removed


def kept(home: Path) -> list[str]:
    """What lies in the home now, but the lock."""
    return sorted(path.name for path in home.iterdir() if path.name != "lock")
