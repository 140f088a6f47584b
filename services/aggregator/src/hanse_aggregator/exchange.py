"""The aggregator's side of exchange: follows the contributions of a step and publishes each sum once it is complete.

A sum takes each participant's first contribution to a key, in the order of their names. It is made in float64, or
modulo 2^64 where the session has a ring. All state is in the streams: after a crash another replica reads them from the
start and publishes the same sums again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import END_KEY, Contribution, ExchangeJob, ExchangeSum, Reduced, Ring
from hanse_fabric.set_aside import Aside
from hanse_fabric.subjects import EXCHANGE, EXCHANGED

log = logging.getLogger(__name__)
_WAITS = 3
_SPARE_S = 10.0


@dataclass(slots=True)
class OpenSums:
    """What was contributed so far; pure. A key's arrays are dropped when its sum is made."""

    participants: tuple[str, ...]
    ring: Ring | None = None
    _open: dict[str, dict[str, bytes]] = field(default_factory=dict)
    _made: set[str] = field(default_factory=set)

    def add(self, participant: str, key: str, values: bytes) -> tuple[bytes, str] | None:
        """Take a contribution; when it completes its key, returns (sum, "") or (b"", what is wrong)."""
        if participant not in self.participants or key in self._made:
            return None
        given = self._open.setdefault(key, {})
        given.setdefault(participant, values)
        if len(given) < len(self.participants):
            return None
        self._made.add(key)
        given = self._open.pop(key)
        if wrong := _sizes_differ(given):
            return b"", wrong
        return _sum(given) if self.ring is None else _ring_sum(given)

    @property
    def ended(self) -> bool:
        return END_KEY in self._made

    @property
    def begun(self) -> tuple[str, ...]:
        """Keys that some have contributed to and others not."""
        return tuple(self._open)

    @property
    def missing(self) -> tuple[str, ...]:
        """Who has not said that it needs no more sums."""
        return tuple(sorted(set(self.participants) - self._open.get(END_KEY, {}).keys()))


def _sizes_differ(given: Mapping[str, bytes]) -> str:
    """Who contributed another size than the first, or one that is not of whole numbers; empty: nobody."""
    names = sorted(given)
    size = len(given[names[0]])
    for name in names:
        if len(given[name]) != size or size % 8:
            return f"{name} contributed {len(given[name])} bytes, {names[0]} {size}"
    return ""


def _ring_sum(given: Mapping[str, bytes]) -> tuple[bytes, str]:
    total = np.zeros(len(next(iter(given.values()))) // 8, "<u8")
    for values in given.values():
        total += np.frombuffer(values, "<u8")  # wraps, as it must
    return total.tobytes(), ""


def _sum(given: Mapping[str, bytes]) -> tuple[bytes, str]:
    names = sorted(given)
    total = np.zeros(len(given[names[0]]) // 8)
    for name in names:
        values = np.frombuffer(given[name], "<f8")
        if not np.isfinite(values).all():
            return b"", f"{name} contributed numbers that are not finite"
        with np.errstate(over="ignore"):
            total += values
    if not np.isfinite(total).all():
        return b"", "the sum is not finite"
    return total.astype("<f8").tobytes(), ""


async def hold_session(job: ExchangeJob, bus: Bus) -> Reduced:
    """Sum for the step's participants until all have ended, or the deadline, or a sum was begun so long ago that nobody
    waits for it any more."""
    sums = OpenSums(tuple(sorted(job.participants)), job.ring)
    error, aside = "", Aside(bus)
    now = bus.clock.monotonic
    left = (job.deadline - bus.clock.now()).total_seconds()
    deadline = now() + left
    since: dict[str, float] = {}
    stream = EXCHANGE.stream
    assert stream is not None  # noqa: S101 - a row of the table that has one
    pattern = EXCHANGE.wildcard(project=job.project, run=job.run, step=job.step)
    try:
        async with bus.clock.timeout(left) as limit, bus.follow(stream, pattern) as records:
            async for record in records:
                await _take(record, job, sums, bus, aside)
                if sums.ended:
                    break
                if job.patience is not None:
                    since = {key: since.get(key, now()) for key in sums.begun}
                    limit.reschedule(min([deadline, *(_given_up(at, job.patience) for at in since.values())]))
    except TimeoutError:
        passed = "the deadline passed" if now() >= deadline else "a sum was given up"
        error = f"exchange: {passed} before {', '.join(sums.missing[:20])} ended"
    return Reduced(job=job.id, project=job.project, run=job.run, step=job.step, error=error)


def _given_up(begun: float, patience: float) -> float:
    """When a sum is given up for good. It is late enough for a participant that was restarted meanwhile and waits once
    more."""
    return begun + _WAITS * patience + _SPARE_S


async def _take(record: Record, job: ExchangeJob, sums: OpenSums, bus: Bus, aside: Aside) -> None:
    # The bus permits a participant its own subject only: the subject says who it was, whatever the message says.
    tokens = EXCHANGE.parse(record.subject)
    try:
        contribution = Contribution.decode(record.data)
    except HanseError as error:
        await aside.put(record.subject, record.data, error, sequence=record.sequence)
        return
    made = sums.add(tokens["participant"], tokens["key"], contribution.values)
    if made is None or tokens["key"] == END_KEY:
        return
    values, wrong = made
    message = ExchangeSum.model_construct(
        project=job.project, run=job.run, step=job.step, key=tokens["key"], values=values, error=wrong
    )
    subject = EXCHANGED.of(project=job.project, run=job.run, step=job.step, key=tokens["key"])
    await bus.publish(subject, message.encode(), message_id=f"exchanged-{job.run}-{job.step}-{tokens['key']}")
