"""Runs that people look at, their finished rounds and what else of their past counts: each event is read from the bus
and taken apart once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hanse_coordinator.thinning import Spread, spread
from hanse_coordinator.watching.past import Past, Told
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
    spreads: dict[int, Spread] = field(default_factory=dict)
    past: Past = field(default_factory=Past)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Histories:
    """Histories by run, of so many runs as were looked at last."""

    def __init__(self, bus: Bus, *, runs: int = 8) -> None:
        self._bus, self._most = bus, runs
        self._held: OrderedDict[str, _History] = OrderedDict()

    async def rounds(self, project: str, run: str) -> list[RoundMetrics]:
        """All that have finished, in order.

        Raises:
            HanseError: TIMEOUT where the bus does not give what it has.
        """
        history = await self._current(project, run)
        return [history.rounds[at] for at in sorted(history.rounds)]

    async def spreads(self, project: str, run: str) -> tuple[list[RoundMetrics], list[Spread]]:
        """All rounds that have finished, in order, and how far the sites are apart in each. Raises as `rounds`."""
        history = await self._current(project, run)
        numbers = sorted(history.rounds)
        return [history.rounds[at] for at in numbers], [history.spreads[at] for at in numbers]

    async def past(self, project: str, run: str, after: int) -> tuple[Sequence[Told], int]:
        """What still counts of all events behind `after`, and up to which event that is.

        Raises:
            HanseError: TIMEOUT where the bus does not give what it has.
        """
        past = (await self._current(project, run)).past
        return past.since(after), past.upto

    def forget(self, project: str, run: str) -> None:
        """Hold nothing of a run that was removed."""
        self._held.pop(EVENT.of(project=project, run=run), None)

    async def _current(self, project: str, run: str) -> _History:
        subject = EVENT.of(project=project, run=run)
        history = self._held.setdefault(subject, _History())
        self._held.move_to_end(subject)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        async with history.reading:
            newest = await self._bus.last(_STREAM, subject)
            if newest is not None and newest.sequence > history.upto:
                records = await self._since(subject, history.upto, newest.sequence)
                await asyncio.to_thread(_take, history, records)
                history.upto = newest.sequence
        return history

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


def _take(history: _History, records: Iterable[Record]) -> None:
    for record in records:
        if record.sequence <= history.past.upto:
            continue
        event = RunEvent.decode(record.data)
        history.past.take(record.sequence, event)
        if event.kind == "round-finished":
            history.spreads[event.round] = spread(sites if isinstance(sites := event.data.get("sites"), dict) else {})
            history.rounds[event.round] = RoundMetrics(
                round=event.round,
                at=event.at,
                metrics=event.data.get("metrics") or {},
                sites=event.data.get("sites") or {},
                bytes=event.data.get("bytes") or {},
                formula=event.data.get("formula") or {},
                undefined=event.data.get("undefined") or {},
                curves=event.data.get("curves") or {},
            )
