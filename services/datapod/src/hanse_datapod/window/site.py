"""One site as its window tells and changes it: what the commands tell and do, by the same code. Its methods block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hanse_datapod.home.approvals import approve, mounted, withdraw
from hanse_datapod.home.departures import Departures
from hanse_datapod.home.outbox import verify_log
from hanse_datapod.home.pause import pause, resume
from hanse_datapod.home.status import SiteStatus
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_site.consent import agree, asked

BY = "the administrator, in the site's window"
"""Who agrees there: whoever may enter it."""
_LAST = 50
_SIGNS = frozenset({"presence"})


class WindowSite:
    """A home of this process.

    Args:
        code: the site's `--code`.
    """

    def __init__(self, home: Path, policy: Policy, code: Path | None, clock: Clock) -> None:
        self.home, self._policy, self._code, self._clock = home, policy, code, clock
        self._departures = Departures(home)
        self._status = SiteStatus(home, policy, code, self._departures)

    def status(self) -> dict[str, Any]:
        """What `status` tells."""
        return self._status.told(last=_LAST, running=True)

    def outbox(self, *, before: int | None, search: str, signs: bool) -> dict[str, Any]:
        """A page of what left; `signs`: with signs of life."""
        page = self._departures.page(before=before, search=search, without=() if signs else _SIGNS)
        return {"entries": page.entries, "before": page.before, "looked_through": page.looked_through}

    def verify(self) -> dict[str, Any]:
        """What `verify-log` tells: the whole log is read anew."""
        found = verify_log(self.home)
        return {"entries": found.entries, "intact": found.broken is None, "broken": found.broken,
                "reason": found.reason}  # fmt: skip

    def code(self) -> dict[str, Any]:
        """The mounted code, with its text and what has changed."""
        shown = [
            {"name": each.name, "digest": each.digest, "approved": each.approved, "files": each.files,
             "imports": each.imports, "changes": each.changes, "error": each.error}
            for each in mounted(self.home, self._policy, self._code)
        ]  # fmt: skip
        return {"code": shown, "approvals": self._policy.site_code.approvals}

    def agree(self, digest: str) -> None:
        """Agree to the terms that the hub asks for, which were shown with this digest.

        Raises:
            HanseError: CONFLICT where it asks for others by now, or for none.
        """
        wanted = asked(self.home)
        if wanted is None:
            raise HanseError(ErrorCode.CONFLICT, "the project asks for no terms", hint="look at the page again")
        agree(self.home, wanted, digest, BY, self._clock)

    def pause(self, reason: str, *, at_once: bool) -> None:
        pause(self.home, reason, at_once=at_once, clock=self._clock)

    def resume(self) -> None:
        resume(self.home)

    def approve(self, digest: str) -> None:
        if self._code is not None:
            approve(self.home, self._policy, self._code, digest, self._clock)

    def withdraw(self, digest: str) -> None:
        withdraw(self.home, digest)
