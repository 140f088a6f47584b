"""What the site's administrator decides while the datapod runs: pauses, and approvals of code. The datapod follows the
home's files, where the window and the commands write them, and writes each decision into the log of what left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from hanse_datapod.home.approvals import Approval, approvals
from hanse_datapod.home.outbox import (
    CODE_APPROVED,
    CODE_WITHDRAWN,
    LOG,
    NAME,
    PAUSED,
    RESUMED,
    Leaving,
    Outbox,
)
from hanse_datapod.home.pause import paused
from hanse_fabric.chain import entries_with
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError

LOOK_S = 2.0
_log = logging.getLogger(__name__)


def is_held_back(home: Path) -> bool:
    """Whether what is done may not leave now: a pause at once holds it back."""
    return (pause := paused(home)) is not None and pause.at_once


async def until_let_out(home: Path, clock: Clock) -> None:
    """Return once what is done may leave, or never, where the work is given up."""
    while is_held_back(home):
        await clock.sleep(LOOK_S)


class Decisions:
    """Of one home.

    Args:
        give_up: stops the work in hand, to be done again later.
        tell: is called when a pause has begun or ended.
    """

    def __init__(
        self, home: Path, outbox: Outbox, clock: Clock, give_up: Callable[[], None],
        tell: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._home, self._outbox, self._clock, self._give_up, self._tell = home, outbox, clock, give_up, tell
        self._paused = False
        self._approved: dict[str, str] = {}

    @property
    def paused(self) -> bool:
        """Whether no task may begin at this moment."""
        return paused(self._home) is not None

    async def until_resumed(self) -> None:
        """Return once tasks may begin."""
        while self.paused:
            await self._clock.sleep(LOOK_S)

    async def follow(self) -> None:
        """Follow the files until cancelled."""
        await asyncio.to_thread(self._read_log)
        stopped, told = False, self.paused
        while True:
            pause = paused(self._home)
            if told != (pause is not None):
                told = not told
                self._tell()
            at_once = pause is not None and pause.at_once
            if at_once and not stopped:
                self._give_up()
            stopped = at_once
            made = self._made()
            if made:
                try:
                    await asyncio.to_thread(self._outbox.append, *made)
                except HanseError as error:  # a full disk: it is tried again
                    _log.warning("a decision could not be written down", extra={"reason": error.message})
                else:
                    self._note(made)
            await self._clock.sleep(LOOK_S)

    def _made(self) -> list[Leaving]:
        """The decisions that the log does not have yet."""
        found = []
        pause = paused(self._home)
        if pause is not None and not self._paused:
            found.append(Leaving(PAUSED, pause.reason, 0))
        if pause is None and self._paused:
            found.append(Leaving(RESUMED, "", 0))
        there = {each.digest: each for each in self._approvals()}
        found += [Leaving(CODE_APPROVED, each.name, 0, each.digest) for each in there.values()
                  if each.digest not in self._approved]  # fmt: skip
        found += [Leaving(CODE_WITHDRAWN, name, 0, digest) for digest, name in self._approved.items()
                  if digest not in there]  # fmt: skip
        return found

    def _approvals(self) -> tuple[Approval, ...]:
        try:
            return approvals(self._home)
        except HanseError:
            return ()  # it is no list: nothing is approved

    def _note(self, written: list[Leaving]) -> None:
        for each in written:
            _log.info("the administrator has decided", extra={"what": each.what, "reason": each.to})
            self._remember(each.what, each.to, each.digest)

    def _remember(self, what: str, to: str, digest: str) -> None:
        if what in (PAUSED, RESUMED):
            self._paused = what == PAUSED
        elif what == CODE_APPROVED:
            self._approved[digest] = to
        else:
            self._approved.pop(digest, None)

    def _read_log(self) -> None:
        """What the log has of earlier decisions."""
        if not (self._home / LOG).exists():
            return
        kinds = (PAUSED, RESUMED, CODE_APPROVED, CODE_WITHDRAWN)
        for entry in entries_with(self._home, NAME, *(f'"what":"{kind}"'.encode() for kind in kinds)):
            self._remember(entry["what"], entry["to"], entry["digest"])
