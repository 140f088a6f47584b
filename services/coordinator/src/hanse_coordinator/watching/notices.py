"""What a run tells people: its events, and the audit of its decisions. Sent in order, without holding the run up."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import AuditEvent, RunEvent
from hanse_fabric.names import derive_id
from hanse_fabric.subjects import AUDIT, EVENT

_LOG = logging.getLogger(__name__)
_AT_ONCE = 256


class Notices:
    """Sends events and audit entries in the background; `flush` waits until all so far are durable.

    A notice has an id made of what it is about, so that one repeated after a crash is dropped by the bus.
    """

    def __init__(self, bus: Bus, clock: Clock, project: str, run: str, *, actor: str) -> None:
        self._bus, self._clock, self._project, self._run, self._actor = bus, clock, project, run, actor
        self._sending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def event(self, kind: str, about: str, *, round: int = 0, **data: Any) -> None:  # noqa: A002 - the message's word
        """Tell those who watch. `about` makes the event's id with `kind`: the same at every replay."""
        message = RunEvent(
            project=self._project, run=self._run, kind=kind, at=self._clock.now(), round=round, data=data
        )
        self._send(EVENT.of(project=self._project, run=self._run), message, f"{kind}/{about}")

    def audit(self, action: str, about: str, *, subject: str = "", **detail: Any) -> None:
        """Record a decision: who (this coordinator), what, when, by the job's authority."""
        message = AuditEvent(
            project=self._project, at=self._clock.now(), actor=self._actor, action=action,
            subject=subject or f"run:{self._run}", authority=f"job of run {self._run}", detail=detail,
        )  # fmt: skip
        self._send(AUDIT.of(project=self._project), message, f"{action}/{about}")

    async def flush(self) -> None:
        """Return when everything said so far is stored, or was logged as not deliverable."""
        if self._sending:
            await asyncio.gather(*self._sending)

    def _send(self, subject: str, message: RunEvent | AuditEvent, about: str) -> None:
        message_id = derive_id(self._project, self._run, subject, about)
        try:
            data = message.encode()
        except HanseError as error:  # a site's words may be as many as one message holds
            _LOG.warning("a notice of run %s cannot be sent: %s", self._run, error)
            return
        task = asyncio.get_running_loop().create_task(self._deliver(subject, data, message_id))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, subject: str, data: bytes, message_id: str) -> None:
        async with self._slots:
            try:
                await self._bus.publish(subject, data, message_id=message_id)
            except HanseError as error:
                # A notice never stops a run; the loss is in the coordinator's own log.
                _LOG.warning("not delivered to %s: %s", subject, error)
