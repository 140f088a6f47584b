"""Who has entered the window. A session has two secrets, and both are asked for by each request.

One is a cookie that no script reads. Browsers send it to every port of this address, and so to other users' servers on
the machine, should one be visited. The other is kept by the page for its own origin, which has the port in it, and is
sent as a header, which no other page can send. Neither is of any use by itself.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError

HEADER = "Hanse-Window"
_IDLE_S, _LONGEST_S = 3600.0, 12 * 3600.0
_MOST = 16


@dataclass(slots=True)
class _Session:
    token: str
    sites: frozenset[str]
    began: float
    used: float


class Sessions:
    """Those of one process; its end ends them.

    Attributes:
        cookie: its name, which other windows on this machine do not use.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[str, _Session] = {}
        self.cookie = f"hanse_window_{secrets.token_hex(4)}"

    def begin(self, sites: frozenset[str]) -> tuple[str, str]:
        """(the cookie's value, the header's) of a new session for these sites, and no other."""
        while len(self._open) >= _MOST:
            self._open.pop(next(iter(self._open)))
        value, token, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._clock.monotonic()
        self._open[value] = _Session(token, sites, now, now)
        return value, token

    def require(self, value: str, token: str | None) -> frozenset[str]:
        """The sites of the session that a request is of, by its cookie's value and its header's.

        Raises:
            HanseError: UNAUTHENTICATED.
        """
        now = self._clock.monotonic()
        found = self._open.get(value)
        if found is not None and (now - found.used > _IDLE_S or now - found.began > _LONGEST_S):
            del self._open[value]
            found = None
        if found is None or not hmac.compare_digest(found.token.encode(), (token or "").encode(errors="replace")):
            raise HanseError(
                ErrorCode.UNAUTHENTICATED, "this browser has not entered the window, or was away for too long",
                hint="make a new link at the site: hanse site window --home DIR",
            )  # fmt: skip
        found.used = now
        return found.sites

    def end(self, value: str) -> None:
        """End a session."""
        self._open.pop(value, None)
