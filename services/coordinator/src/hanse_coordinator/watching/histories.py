"""The finished rounds of runs that people look at: each event is read from the bus and taken apart once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT, Stream
from hanse_schemas.http.runs import RoundMetrics

_STREAM: Stream = EVENT.stream or Stream("")
_WITHIN_S = 10.0


@dataclass(slots=True)
class _History:
    upto: int = 0
    rounds: dict[int, RoundMetrics] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Histories:
    """Finished rounds by run, of so many runs as were looked at last."""

    def __init__(self, bus: Bus, *, runs: int = 8) -> None:
        self._bus, self._most = bus, runs
        self._held: OrderedDict[str, _History] = OrderedDict()

    async def rounds(self, project: str, run: str) -> list[RoundMetrics]:
        """All that have finished, in order.

        Raises:
            HanseError: TIMEOUT where the bus does not give what it has.
        """
        subject = EVENT.of(project=project, run=run)
        history = self._held.setdefault(subject, _History())
        self._held.move_to_end(subject)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        async with history.reading:
            newest = await self._bus.last(_STREAM, subject)
            if newest is not None and newest.sequence > history.upto:
                records = await self._since(subject, history.upto, newest.sequence)
                history.rounds |= await asyncio.to_thread(_finished, records)
                history.upto = newest.sequence
        return [history.rounds[at] for at in sorted(history.rounds)]

    async def _since(self, subject: str, after: int, upto: int) -> list[Record]:
        if after == 0:
            return [record for record in await self._bus.snapshot(_STREAM, subject) if record.sequence <= upto]
        found: list[Record] = []
        try:
            async with self._bus.clock.timeout(_WITHIN_S), self._bus.follow(_STREAM, subject, after=after) as records:
                async for record in records:
                    found.append(record)
                    if record.sequence >= upto:
                        break
        except TimeoutError:
            raise HanseError(ErrorCode.TIMEOUT, "events: the bus does not give them", hint="try again") from None
        return found


def _finished(records: Iterable[Record]) -> dict[int, RoundMetrics]:
    rounds: dict[int, RoundMetrics] = {}
    for record in records:
        event = RunEvent.decode(record.data)
        if event.kind == "round-finished":
            rounds[event.round] = RoundMetrics(
                round=event.round,
                at=event.at,
                metrics=event.data.get("metrics") or {},
                sites=event.data.get("sites") or {},
                bytes=event.data.get("bytes") or {},
                formula=event.data.get("formula") or {},
                undefined=event.data.get("undefined") or {},
                curves=event.data.get("curves") or {},
            )
    return rounds
