"""The journal of a run: every step's outcome, written before the workflow goes on, by one writer at a time.

The fence is the stream itself: each append names the sequence that must be the last on the run's subject. A new
coordinator appends an entry of kind `lease` first; from then on the former's appends are refused, for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

from pydantic import Field

from hanse_coordinator.runs.journal_room import JournalRoom
from hanse_coordinator.verbs.failures import Fenced
from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Message
from hanse_fabric.names import StepKey
from hanse_fabric.strict_json import LARGE
from hanse_fabric.subjects import JOURNAL, Stream
from hanse_workflows.failures import RunFailure
from hanse_workflows.fingerprint import short

EntryKind = Literal["lease", "opened", "closed"]

_TRIES = 20
_STREAM: Stream = JOURNAL.stream or Stream("")


class JournalEntry(Message):
    """One line of a run's journal.

    Attributes:
        epoch: which holder of the run wrote it, counted from 1.
        step: the step's key; `lease` for entries of that kind.
        body: what must be known to go on: of an opened step its deadline, of a closed one its outcome.
        fingerprint: of what was asked (`hanse_workflows.fingerprint`); None in entries of release 0.1.0, and of leases.
    """

    schema_id: ClassVar[str] = "hanse.journal_entry/2"
    limits = LARGE
    upgrades = {"hanse.journal_entry/1": lambda body: body}

    epoch: int = Field(ge=1)
    kind: EntryKind
    step: StepKey
    body: dict[str, Any] = {}
    fingerprint: str | None = None


class Journal:
    """The journal, held by this coordinator. Recorded outcomes are handed out once, so memory shrinks at replay.

    Attributes:
        size: bytes of all its entries.
    """

    def __init__(
        self, bus: Bus, project: str, run: str, *, epoch: int, last: int, entries: list[JournalEntry], size: int,
        room: JournalRoom,
    ) -> None:  # fmt: skip
        self._bus, self._project, self._run = bus, project, run
        self.size, self._room = size, room
        room.note(project, run, size)
        self._subject = JOURNAL.of(project=project, run=run)
        self.epoch = epoch
        self._last = last
        self._order = asyncio.Lock()
        self._under_way: asyncio.Future[int] | None = None
        self._opened = {entry.step: entry.body for entry in entries if entry.kind == "opened"}
        self._closed = {entry.step: entry.body for entry in entries if entry.kind == "closed"}
        self._fingerprints = {entry.step: entry.fingerprint for entry in entries}
        self.replaying = bool(self._opened or self._closed)
        # A run that began under release 0.1.0 ends as it began: under its names of jobs, so that what was asked of
        # aggregators is found, and with requests that are bound to nothing, as the answers that are there already.
        first = next((entry for entry in entries if entry.kind != "lease"), None)
        self.of_first_release = first is not None and first.fingerprint is None

    @classmethod
    async def open(
        cls, bus: Bus, project: str, run: str, *, holder: str, room: JournalRoom | None = None
    ) -> Journal:  # fmt: skip
        """Read the journal and become its writer: the former one is fenced off from here on.

        Raises:
            HanseError: LOCKED when others keep writing it; UNAVAILABLE when the bus does not answer; UNKNOWN_SCHEMA
                for an entry of a newer release.
            RunFailure: an entry is damaged, or two of one step differ, so nobody can go on with this run.
        """
        subject = JOURNAL.of(project=project, run=run)
        for _ in range(_TRIES):
            records = await bus.snapshot(_STREAM, subject)
            entries = [_entry(record) for record in records]
            _check_once(subject, records, entries)
            last = max((record.sequence for record in records), default=0)
            epoch = max((entry.epoch for entry in entries), default=0) + 1
            taken = JournalEntry(epoch=epoch, kind="lease", step="lease", body={"holder": holder})
            data = taken.encode()
            try:
                last = await bus.publish(subject, data, expected_last=last)
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
                continue
            size = sum(len(record.data) for record in records) + len(data)
            return cls(
                bus, project, run, epoch=epoch, last=last, entries=entries, size=size, room=room or JournalRoom()
            )  # fmt: skip
        raise Fenced(run)

    def fingerprint_of(self, step: str) -> str | None:
        """Of what was asked in a step that has an entry; None where it has none, or one of release 0.1.0."""
        return self._fingerprints.pop(step, None)

    def job_id(self, step: str, mark: str) -> str:
        """The id of the aggregators' job of a step that asks for what has this fingerprint."""
        return step if self.of_first_release else f"{step}-{short(mark)}"

    async def append(
        self, kind: EntryKind, step: str, body: dict[str, Any], *, fingerprint: str | None = None, last: bool = False
    ) -> None:
        """Write one entry; when it returns, the entry is durable.

        Args:
            last: the run ends with it.

        Raises:
            Fenced: another coordinator has written since; nothing more may be done for this run.
            RunFailure: QUOTA where the project's journals have no room for it.
        """
        data = JournalEntry(epoch=self.epoch, kind=kind, step=step, body=body, fingerprint=fingerprint).encode()
        async with self._order:
            self._room.take(self._project, self._run, self.size + len(data), last=last)
            self.size += len(data)
            if self._under_way is not None:
                # Somebody's who was cancelled meanwhile: whether it came to be says what the last sequence is.
                with suppress(HanseError):
                    self._last = await asyncio.shield(self._under_way)
            publishing = self._bus.publish(self._subject, data, expected_last=self._last)
            self._under_way = asyncio.ensure_future(publishing)
            try:
                self._last = await asyncio.shield(self._under_way)
            except HanseError as error:
                self._under_way = None
                if error.code is ErrorCode.CONFLICT:
                    raise Fenced(self._run) from None
                raise
            self._under_way = None

    async def abandon(self) -> None:
        """Wait for nothing that is under way still."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    def take_closed(self, step: str) -> dict[str, Any] | None:
        """The recorded outcome of a step, or None where it has none yet. Given once."""
        if step in self._closed:
            self._opened.pop(step, None)
        return self._closed.pop(step, None)

    def take_opened(self, step: str) -> dict[str, Any] | None:
        """What was recorded when the step was opened, or None. Given once."""
        return self._opened.pop(step, None)


def _check_once(subject: str, records: Sequence[Record], entries: Sequence[JournalEntry]) -> None:
    """Check that no two entries of a kind and a step differ: which of them the run went on with, nobody knows.

    Raises:
        RunFailure: STEP_CHANGED naming both entries.
    """
    first: dict[tuple[str, str], tuple[int, JournalEntry]] = {}
    for record, entry in zip(records, entries, strict=True):
        if entry.kind == "lease":
            continue
        number, former = first.setdefault((entry.kind, entry.step), (record.sequence, entry))
        if (former.body, former.fingerprint) != (entry.body, entry.fingerprint):
            raise RunFailure(
                ErrorCode.STEP_CHANGED,
                f"{subject}: entries {number} and {record.sequence} of the journal are both of step {entry.step}, "
                f"{entry.kind}, and differ (fingerprints {former.fingerprint} and {entry.fingerprint})",
                hint="restore the hub's backup, or run the job again",
            )


def _entry(record: Record) -> JournalEntry:
    try:
        return JournalEntry.decode(record.data)
    except HanseError as error:
        if JournalEntry.is_newer(record.data):
            raise
        raise RunFailure(
            error.code, f"{record.subject}: entry {record.sequence} of the journal cannot be read: {error.message}",
            hint="restore the hub's backup, or run the job again",
        ) from None  # fmt: skip
