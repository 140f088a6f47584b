"""Whether the site's administrator has paused it: a file of the home, which the datapod looks at and which stays over
restarts. The site's window and the commands write the same file.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import invalid
from hanse_fabric.frozen import Frozen, Time

FILE = "paused"
LONGEST = 200
"""Characters of a reason."""


class Pause(Frozen):
    """A pause, until `resume`.

    Attributes:
        at_once: the work in hand is given up, too, and nothing of it begins to leave; else it is finished first.
    """

    since: Time | None
    reason: str = Field(max_length=LONGEST)
    at_once: bool = False


def pause(home: Path, reason: str, *, at_once: bool = False, clock: Clock = SYSTEM_CLOCK) -> Pause:
    """Let no task begin from now on.

    Raises:
        HanseError: INVALID_INPUT for a reason that is too long; NO_SPACE.
    """
    made = Pause(since=clock.now(), reason=checked_reason(reason), at_once=at_once)
    write_durably(home / FILE, made.model_dump_json())
    return made


def resume(home: Path) -> bool:
    """Let tasks begin again; False: it was not paused."""
    try:
        (home / FILE).unlink()
    except FileNotFoundError:
        return False
    return True


def paused(home: Path) -> Pause | None:
    """The pause that the site is in. A file that cannot be read is one: it is there because somebody wanted one."""
    try:
        return Pause.model_validate_json((home / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        return Pause(since=None, reason=f"the file {FILE} cannot be read")


def checked_reason(reason: str) -> str:
    """A reason that people give, for the log.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if len(reason) > LONGEST or not reason.isprintable():
        raise invalid("reason", reason[: LONGEST + 1], f"one line of {LONGEST} characters at most")
    return reason.strip()
