"""What every service that works a queue does alike: take messages, do what they ask, give back what must wait.

A message is acknowledged after its answer is stored, so that of a dead replica is done again by another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from hanse_fabric import telemetry
from hanse_fabric.bus.port import Bus, HeldMessage
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.base import Message
from hanse_fabric.set_aside import Aside
from hanse_fabric.subjects import Retention, Stream, Subject

RETRY_S = 1.0
"""Seconds until a message that failed for want of a server is offered again."""

M = TypeVar("M", bound=Message)
log = logging.getLogger(__name__)


class QueueWorker(Generic[M]):
    """Works one queue of the table of subjects.

    Args:
        subject: the queue's row.
        read: reads what is asked of a message's bytes; what it cannot read (HanseError) is set aside.
        slot: how many of a kind are done at once: no further message is taken while this is used up.
        answer: does what is asked and stores its answer. Its HanseErrors are about servers that are missing: the
            message is put back and comes again.
        span: name of the trace's span.
    """

    def __init__(
        self,
        bus: Bus,
        subject: Subject,
        *,
        read: Callable[[bytes], M],
        slot: Callable[[M], asyncio.Semaphore],
        answer: Callable[[M], Awaitable[None]],
        span: str,
    ) -> None:
        if subject.stream is None or subject.stream.retention is not Retention.QUEUE:
            raise invalid("subject", subject.pattern, "a row with a queue")
        self._bus, self._stream, self._aside = bus, subject.stream, Aside(bus)
        self._read, self._slot, self._answer, self._span = read, slot, answer, span

    async def run(self, stopping: asyncio.Event, *, on_stop: Callable[[], None] | None = None) -> None:
        """Work until `stopping` is set; what is unfinished then goes back to the queue.

        Args:
            on_stop: tells work in threads to give up.
        """
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(self._pump())
            await stopping.wait()
            if on_stop is not None:
                on_stop()
            pump.cancel()

    async def _pump(self) -> None:
        async with self._bus.work(self._stream) as queued, asyncio.TaskGroup() as group:
            async for held in queued:
                try:
                    asked = self._read(held.record.data)
                except HanseError as error:
                    await self._aside.put(held.record.subject, held.record.data, error, sequence=held.record.sequence)
                    await held.done()
                    continue
                slot = self._slot(asked)
                await slot.acquire()
                group.create_task(self._hold(held, asked, slot))

    async def _hold(self, held: HeldMessage, asked: M, slot: asyncio.Semaphore) -> None:
        """Do what one message asks; where a server is missing, give it back after a pause."""
        try:
            with telemetry.span(self._span, parent=telemetry.extract(held.record.headers), job=held.record.subject):
                await self._answer(asked)
            await held.done()
        except HanseError as error:
            log.warning("message on %s is put back: %s", held.record.subject, error)
            await self._bus.clock.sleep(RETRY_S)
            with suppress(HanseError):
                await held.give_back()
        finally:
            slot.release()


def stream_of(subject: Subject) -> Stream:
    """The stream behind a row of the table that has one.

    Raises:
        HanseError: INTERNAL for a row of request and reply.
    """
    if subject.stream is None:
        raise HanseError(ErrorCode.INTERNAL, f"{subject.pattern} has no stream")
    return subject.stream
