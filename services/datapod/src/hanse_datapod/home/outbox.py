"""The outbox log: everything that leaves the site, written down and on the disk before it leaves.

The log is chained (`hanse_fabric.chain`): no line can be changed, dropped or reordered unseen. A reserve file
keeps some space back, so that on a full disk the refusal can still be written down and sent.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hanse_fabric.chain import ChainedLog, LogCheck, verify_chain
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError

NAME = "outbox"
LOG = f"{NAME}.jsonl"
HEAD = f"{NAME}.head"
RESERVE = f"{NAME}.reserve"
RESERVE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Leaving:
    """Something about to leave.

    Attributes:
        what: update, masked-update, extra, tally, sum, result, progress, presence, link-request, join; `repaired` for a
            note of the log's own, `moved`, `renewed` and `ledger-restored` for decisions of the administrator.
        to: bus subject, object key or URL.
        digest: SHA-256 (for large objects over leaves, as in `tensors.digest`) of what leaves; empty for requests.
    """

    what: str
    to: str
    size: int
    digest: str = ""


class Outbox:
    """The log of one site, held open by its one datapod. Its methods block, and any thread may call them."""

    def __init__(self, home: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        """Open or begin the log, removing a torn last line.

        Raises:
            HanseError: TAMPERED when the newest whole line is not the one the log ended with.
        """
        self._home = home
        self._lock = threading.Lock()
        self._log = ChainedLog(home, NAME, clock)
        self._keep_reserve()
        if torn := self._log.torn:
            self.append(Leaving("repaired", f"{torn} bytes of a line that was torn by a crash, removed", torn))

    def append(self, *leaving: Leaving) -> None:
        """Write entries down; they are on the disk when this returns. Blocks for as long as the disk takes.

        Raises:
            HanseError: NO_SPACE when even the reserve is used up. The log is then as it was.
        """
        entries = [asdict(item) for item in leaving]
        with self._lock:
            try:
                self._log.append(*entries)
            except HanseError as error:
                if error.code is not ErrorCode.NO_SPACE or not self._release_reserve():
                    raise
                self._log.append(*entries)
            self._keep_reserve()

    def close(self) -> None:
        self._log.close()

    def _release_reserve(self) -> bool:
        try:
            (self._home / RESERVE).unlink()
        except FileNotFoundError:
            return False
        return True

    def _keep_reserve(self) -> None:
        path = self._home / RESERVE
        if path.exists():
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            kept = True
        except OSError:
            kept = False  # a full disk: the next append tries again
        finally:
            os.close(descriptor)
        if not kept:
            with suppress(FileNotFoundError):
                path.unlink()


def verify_log(home: Path) -> LogCheck:
    """Check the whole log of `home`, without changing it.

    Raises:
        HanseError: NOT_FOUND when there is none.
    """
    return verify_chain(home, NAME)
