"""Runs in this coordinator's care: picks those that nobody works on, runs their workflows, obeys pause and cancel.

Any number of coordinators do the same at once; a run's lease says whose it is. What a workflow needs to be taken up
elsewhere is in its journal, so everything here may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hanse_coordinator.runs.journal import Journal
from hanse_coordinator.runs.journal_room import JournalRoom
from hanse_coordinator.runs.lease import Leases
from hanse_coordinator.runs.roster import Roster
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.runs.status import RunStatus
from hanse_coordinator.verbs.durable import DurableVerbs
from hanse_coordinator.verbs.failures import Fenced, Paused, reason_of
from hanse_coordinator.verbs.objects import RunObjects
from hanse_coordinator.watching.notices import Notices
from hanse_coordinator.watching.vitals import BACKLOG, TOLD_EVERY_S, Vitals
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.telemetry import continued, extract
from hanse_fabric.telemetry.catalogue import OPEN_RUNS, RUNS, RUNS_ENDED
from hanse_fabric.waiting import first_of, stop
from hanse_schemas.http.runs import FINAL_STATES
from hanse_workflows.failures import RunFailure
from hanse_workflows.preflight import require_budgets
from hanse_workflows.preparing import conduct_prepared
from hanse_workflows.workflow import blamed, workflow_of

if TYPE_CHECKING:
    from hanse_coordinator.records import Buckets, RunRecord

_LOG = logging.getLogger(__name__)
_RETRY_AFTER_S = 1.0
_QUEUES = ("aggregators", "compensators")
_OPEN_STATES = ("waiting", "running", "paused")
_END = "end"
_INTERRUPTIONS = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT, ErrorCode.CONFLICT, ErrorCode.LOCKED})

Key = tuple[str, str]


@dataclass(slots=True)
class _Held:
    """A run that this coordinator works on, and what its owner wants of it meanwhile."""

    pause: asyncio.Event = field(default_factory=asyncio.Event)
    cancel: asyncio.Event = field(default_factory=asyncio.Event)

    def obey(self, wanted: str) -> None:
        (self.pause.set if wanted == "pause" else self.pause.clear)()
        if wanted == "cancel":
            self.cancel.set()


class Supervisor:
    """Takes up runs and works on them.

    Args:
        bus, store: where everything is.
        buckets: the coordinator's records.
        clock: of the bus, too.
    """

    def __init__(
        self, *, bus: Bus, store: ObjectStore, buckets: Buckets, clock: Clock, settings: WorkflowSettings
    ) -> None:
        self._bus, self._store, self._buckets, self._clock, self._settings = bus, store, buckets, clock, settings
        self._wake = asyncio.Event()
        self._leases = Leases(bus, instance=settings.instance, ttl=settings.lease_ttl, changed=self._wake)
        self._roster = Roster(bus, buckets.participants, clock)
        self._records: dict[Key, tuple[RunRecord, int]] = {}
        self._held: dict[Key, _Held] = {}
        self._not_before: dict[Key, float] = {}
        self._vitals = Vitals(clock)
        self._room = JournalRoom(settings.journals)

    async def run(self) -> None:
        """Work until cancelled; then give the leases back, so that others may go on at once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._leases.watch())
            group.create_task(self._roster.watch())
            group.create_task(self._watch_runs())
            await self._leases.ready.wait()
            await self._roster.ready.wait()
            group.create_task(self._keep_gauges())
            while True:
                self._wake.clear()
                soonest = self._start_due(group)
                RUNS.set(len(self._held))
                try:
                    async with self._clock.timeout(soonest):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _keep_gauges(self) -> None:
        """Keep the operator's gauges current, until cancelled."""
        while True:
            self._vitals.set_gauges()
            BACKLOG.set_gauges(_QUEUES, self._clock)
            self._roster.set_gauges()
            states = Counter(_shown_state(record) for record, _ in self._records.values())
            OPEN_RUNS.replace({(state,): states[state] for state in _OPEN_STATES})
            await self._clock.sleep(TOLD_EVERY_S)

    def _start_due(self, group: asyncio.TaskGroup) -> float | None:
        """Start what is due; returns the seconds until something else may be, or None."""
        now, soonest = self._clock.monotonic(), None
        for key, (record, _) in self._records.items():
            if key in self._held or not is_due(record):
                continue
            wait = max(self._leases.free_in(record.run), self._not_before.get(key, 0.0) - now)
            if wait <= 0:
                held = self._held[key] = _Held()
                held.obey(record.wanted)
                group.create_task(self._drive(key, held))
            else:
                soonest = wait if soonest is None else min(soonest, wait)
        return soonest

    async def _watch_runs(self) -> None:
        async with self._buckets.runs.watch() as changes:
            async for change in changes:
                if change is None:
                    continue
                key = change.tokens["project"], change.tokens["run"]
                if change.value is None:
                    self._room.forget(*key)
                else:
                    self._room.note(*key, change.value.journal or 0)
                self._see(key, change.value, change.revision)

    def _see(self, key: Key, record: RunRecord | None, revision: int) -> None:
        if key in self._records and self._records[key][1] > revision:
            return
        if record is None or record.state in FINAL_STATES:
            self._records.pop(key, None)
            self._not_before.pop(key, None)
        else:
            self._records[key] = record, revision
            if key in self._held:
                self._held[key].obey(record.wanted)
        self._wake.set()

    async def _drive(self, key: Key, held: _Held) -> None:
        """Hold the run's lease while working on it."""
        lease = None
        try:
            lease = await self._leases.take(key[1])
            if lease is not None:
                await first_of(lease.keep(), self._work(key, held))
            else:
                self._delay(key, 0.05)
        except Exception as error:
            # One run's trouble is not the others': it is taken up again, by this coordinator or another.
            self._delay(key, _RETRY_AFTER_S)
            if isinstance(error, HanseError):
                _LOG.warning("run %s is interrupted: %s", key[1], error)
            else:
                _LOG.exception("run %s is interrupted by a defect", key[1])
        finally:
            del self._held[key]
            self._wake.set()
            if lease is not None:
                await _release(lease.release(), self._clock)

    def _delay(self, key: Key, seconds: float) -> None:
        self._not_before[key] = self._clock.monotonic() + seconds

    async def _work(self, key: Key, held: _Held) -> None:
        project, run = key
        entry = await self._buckets.runs.get(project=project, run=run)
        if entry is None or entry.value.state in FINAL_STATES:
            self._see(key, None, 0 if entry is None else entry.revision)
            return
        held.obey(entry.value.wanted)
        actor = f"service:coordinator/{self._settings.instance}"
        notices = Notices(self._bus, self._clock, project, run, actor=actor)
        try:
            journal = await Journal.open(self._bus, project, run, holder=self._settings.instance, room=self._room)
        except RunFailure as failure:
            unknown = RunStatus(self._buckets.runs, self._clock, notices, project=project, run=run, epoch=0)
            _LOG.error("run %s fails: %s", run, failure)
            await self._tell_end(key, unknown, notices, _failed(failure))
            return
        notices.audit("run.take", str(journal.epoch), epoch=journal.epoch)
        status = RunStatus(
            self._buckets.runs, self._clock, notices, project=project, run=run, epoch=journal.epoch, journal=journal
        )  # fmt: skip
        context = DurableVerbs(
            bus=self._bus, clock=self._clock, settings=self._settings, project=project, run=run, job=entry.value.job,
            problem=entry.value.problem, terms=entry.value.terms, journal=journal, roster=self._roster, notices=notices,
            objects=RunObjects(self._store, project), models=self._buckets.models,
            progressed=status.progressed, pause=held.pause, asked_by=extract({"traceparent": entry.value.trace or ""}),
        )  # fmt: skip
        try:
            with self._vitals.watching(context.vitals), continued(context.asked_by):
                end = journal.take_closed(_END)
                if end is None:
                    end = await self._outcome(context, status, held)
                    if end["state"] in FINAL_STATES:
                        await journal.append("closed", _END, end, last=True)
            await self._finish(key, context, status, notices, end)
        finally:
            await context.abandon()

    async def _outcome(self, context: DurableVerbs, status: RunStatus, held: _Held) -> dict[str, Any]:
        """Run the workflow to its end, or until its owner wants otherwise. Values for the run's record."""
        workflow = asyncio.ensure_future(_conducted(context))
        others = [asyncio.ensure_future(wait) for wait in (context.follow(), status.write(), held.cancel.wait())]
        try:
            await asyncio.wait([workflow, *others], return_when=asyncio.FIRST_COMPLETED)
            if held.cancel.is_set():
                return {**status.fields, "state": "cancelled", "reason": "cancelled by its owner"}
            if not workflow.done():
                for other in others:
                    if other.done():
                        other.result()
            state, reason = _ended(workflow, context.run)
            if state == "completed":  # why before its last round, it has said itself
                reason = status.fields.get("reason", "")
            return {**status.fields, "state": state, "reason": reason}
        finally:
            await stop(workflow, *others)

    async def _finish(
        self, key: Key, context: DurableVerbs, status: RunStatus, notices: Notices, end: dict[str, Any]
    ) -> None:
        """Tidy, record the outcome, tell of it. Each part may be repeated by the next coordinator; the record comes
        late, because nobody takes up a run whose record is final."""
        await context.settle()
        if end["state"] in FINAL_STATES:
            await context.tidy(end.get("outputs") or {})
        await self._tell_end(key, status, notices, end)

    async def _tell_end(self, key: Key, status: RunStatus, notices: Notices, end: dict[str, Any]) -> None:
        entry = await status.store(end)
        self._see(key, entry.value, entry.revision)
        state, reason = end["state"], end["reason"]
        if state in FINAL_STATES:
            RUNS_ENDED.add(state=state)
        about = state if state in FINAL_STATES else f"{state}/{entry.revision}"
        notices.audit(f"run.{state}", about, reason=reason)
        notices.event("state", about, state=state, reason=reason)
        await notices.flush()


async def _conducted(verbs: DurableVerbs) -> None:
    """Conduct the run; of several reasons to end, raise the one that counts."""
    try:
        workflow = workflow_of(verbs.job)
        if verbs.binds:  # a run that began under release 0.1.0 has charged its sites already
            await require_budgets(verbs)
        await conduct_prepared(workflow, verbs)
        await verbs.published()
    except BaseExceptionGroup as several:
        first = reason_of(several)
        raise blamed(verbs.job, first) or first from several
    except (Exception, SystemExit) as error:  # whatever a foreign package raises: it may end the run, no coordinator
        if (reason := blamed(verbs.job, error)) is None:
            raise
        _LOG.error("run %s ends by an exception of its workflow", verbs.run, exc_info=error)
        raise reason from error


def _ended(workflow: asyncio.Future[None], run: str) -> tuple[str, str]:
    """(state, reason) of a run whose workflow has ended; raises where only this coordinator's hold has ended."""
    error = workflow.exception()
    if error is None:
        return "completed", ""
    if isinstance(error, Paused):
        return "paused", ""
    if isinstance(error, HanseError) and (
        isinstance(error, RunFailure) or not (isinstance(error, Fenced) or error.code in _INTERRUPTIONS)
    ):
        failed = _failed(error)
        return failed["state"], failed["reason"]
    if isinstance(error, HanseError) or not isinstance(error, Exception):
        raise error
    _LOG.error("run %s fails by a defect", run, exc_info=error)
    return "failed", f"{ErrorCode.INTERNAL.code}: a defect in Hanse: {type(error).__name__}: {error}"


def _failed(error: HanseError) -> dict[str, Any]:
    return {"state": "failed", "reason": f"{error.code.code}: {error}"}


def _shown_state(record: RunRecord) -> str:
    """A paused run that is wanted again waits until a coordinator takes it up. Pure."""
    return "waiting" if record.state == "paused" and is_due(record) else str(record.state)


def is_due(record: RunRecord) -> bool:
    """Whether a coordinator has something to do for this run. Pure."""
    return record.state not in FINAL_STATES and not (record.state == "paused" and record.wanted == "pause")


async def _release(release: Awaitable[None], clock: Clock) -> None:
    """Give a lease back, but not at any price: it ends by itself."""
    try:
        async with clock.timeout(2.0):
            await release
    except TimeoutError:
        _LOG.info("a lease was not given back: the bus does not answer")
