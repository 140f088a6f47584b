"""The outbox log: everything that leaves the site, written down and on the disk before it leaves.

The log is chained (`hanse_fabric.chain`): no line can be changed, dropped or reordered unseen. A reserve file
keeps some space back, so that on a full disk the refusal can still be written down and sent.

Whoever cuts lines off the end, and writes the log's head anew, is found out by what others have seen: the head, signed,
goes beside each answer, and comes back beside each task (`hanse_privacy.witness`).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hanse_fabric.chain import ChainedLog, LogCheck, entries_with, verify_chain
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import LedgerHead

NAME = "outbox"
LOG = f"{NAME}.jsonl"
HEAD = f"{NAME}.head"
RESERVE = f"{NAME}.reserve"
RESERVE_BYTES = 64 << 10
MISSING, RESTORED = "missing", "log-restored"
"""Kinds of entries: an entry that others have seen and the log lacks; the administrator's word on all of them."""
PAUSED, RESUMED, CODE_APPROVED, CODE_WITHDRAWN = "paused", "resumed", "code-approved", "code-withdrawn"
"""Kinds of entries: what the administrator has decided of this site's work, and of code by its digest."""
CONSENT, LEAVE = "consent", "leave"
"""Kinds of entries: that this site agrees to the project's terms of that digest; that it is a member no more."""
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Leaving:
    """Something about to leave.

    Attributes:
        what: update, masked-update, extra, tally, sum, result, progress, presence, link-request, join, consent, leave;
            `repaired` for a note of the log's own, `missing` for an entry that it lacks, `moved`, `renewed`,
            `ledger-restored`, `log-restored`, `paused`, `resumed`, `code-approved` and `code-withdrawn` for decisions
            of the administrator.
        to: bus subject, object key or URL; of a decision, why.
        digest: SHA-256 (for large objects over leaves, as in `tensors.digest`) of what leaves; empty for requests.
        task: for which it leaves: run and step, with a slash between; None: for none.
        shape: which arrays or numbers it consists of, for people; None: of none, or it is not known.
        masked: whether its numbers have masks on them; None: it has no numbers of the data.
    """

    what: str
    to: str
    size: int
    digest: str = ""
    task: str | None = None
    shape: str | None = None
    masked: bool | None = None


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
        self._known: OrderedDict[tuple[int, str], None] = OrderedDict()
        self._lacking: dict[str, bool] | None = None
        self._keep_reserve()
        if torn := self._log.torn:
            self.append(Leaving("repaired", f"{torn} bytes of a line that was torn by a crash, removed", torn))

    def append(self, *leaving: Leaving) -> None:
        """Write entries down; they are on the disk when this returns. Blocks for as long as the disk takes.

        Raises:
            HanseError: NO_SPACE when even the reserve is used up. The log is then as it was.
        """
        entries = [{name: value for name, value in asdict(item).items() if value is not None} for item in leaving]
        with self._lock:
            try:
                self._log.append(*entries)
            except HanseError as error:
                if error.code is not ErrorCode.NO_SPACE or not self._release_reserve():
                    raise
                self._log.append(*entries)
            self._keep_reserve()

    def head(self) -> tuple[int, str]:
        """(number of entries, the newest one's hash)."""
        with self._lock:
            head = self._log.entries, self._log.newest
            self._remember(head)
            return head

    def knows(self, head: LedgerHead) -> bool:
        """Whether the log was seen to have this head: then it does not matter who says so."""
        with self._lock:
            return (head.entries, head.head) in self._known

    def require(self, head: LedgerHead | None) -> None:
        """Check that the log lacks nothing that others have seen. What it lacks is written down.

        Args:
            head: the newest entry that others have seen, as far as they say.

        Raises:
            HanseError: TAMPERED where it lacks something, and the administrator has not said why.
        """
        with self._lock:
            if self._lacking is None or (head is not None and (head.entries, head.head) not in self._known):
                self._lacking = self._look(head)
        if head is not None and head.head not in self._lacking and (head.entries, head.head) not in self._known:
            self.append(Leaving(MISSING, f"entry {head.entries}, which this site has signed", 0, head.head))
            self._lacking[head.head] = False
        if not all(self._lacking.values()):
            raise HanseError(
                ErrorCode.TAMPERED,
                "the site's log of what left is shorter than it was, or another",
                hint="the site's administrator restores the newest copy, or says why there is none: "
                "python -m hanse_datapod log-restored",
            )

    def _look(self, head: LedgerHead | None) -> dict[str, bool]:
        """What the log is known to lack, by hash: whether the administrator has said why. The head is remembered where
        the log has it."""
        lacking: dict[str, bool] = {}
        wanted = [] if head is None else [head.head.encode()]
        for entry in entries_with(self._home, NAME, MISSING.encode(), RESTORED.encode(), *wanted):
            if entry["what"] == MISSING:
                lacking.setdefault(entry["digest"], False)
            elif entry["what"] == RESTORED:
                lacking = dict.fromkeys(lacking, True)
            if head is not None and (entry["sequence"], entry["hash"]) == (head.entries, head.head):
                self._remember((head.entries, head.head))
        if head is not None and lacking.get(head.head):
            self._remember((head.entries, head.head))
        return lacking

    def _remember(self, head: tuple[int, str]) -> None:
        self._known[head] = None
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

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
