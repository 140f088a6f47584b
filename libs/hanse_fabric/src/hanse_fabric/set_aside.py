"""Messages that cannot be read: counted, named in the log, and kept where an operator can look at them.

No loop ends because of a message: whoever follows, serves or works a queue gives here what its decoder refuses.
"""

from __future__ import annotations

import base64
import logging
from collections import OrderedDict

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import HanseError
from hanse_fabric.messages.state import SetAside
from hanse_fabric.subjects import SET_ASIDE, SUBJECTS, Stream
from hanse_fabric.telemetry.catalogue import UNREADABLE

_LOG = logging.getLogger(__name__)
_STREAM: Stream = SET_ASIDE.stream or Stream("")
_HEAD_BYTES = 4 << 10
_EVERY_S = 1.0
_MOST_SENDERS = 4096
_PATIENCE_S = 2.0
_NOBODY = "-"


class Aside:
    """Where a reader puts what it cannot read. One message a second of each sender is kept at most, all are counted."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._kept_at: OrderedDict[str, float] = OrderedDict()

    async def put(self, subject: str, data: bytes, error: HanseError, *, sequence: int = 0) -> None:
        """Count a message, and keep it unless another of its sender's was kept just now. Never raises."""
        area, project, who = _sender(subject)
        UNREADABLE.add(area=area, code=error.code.code)
        place = SET_ASIDE.of(area=area, project=project, who=who)
        now = self._bus.clock.monotonic()
        if now - self._kept_at.get(place, -_EVERY_S) < _EVERY_S:
            return
        self._kept_at[place] = now
        self._kept_at.move_to_end(place)
        while len(self._kept_at) > _MOST_SENDERS:
            self._kept_at.popitem(last=False)
        _LOG.warning("message on %s cannot be read and is set aside: %s", subject, error)
        aside = SetAside(
            subject=subject[:1000], sequence=sequence, at=self._bus.clock.now(), code=error.code.code,
            reason=error.message[:2000], size=len(data), head=base64.b64encode(data[:_HEAD_BYTES]),
        )  # fmt: skip
        try:
            await self._bus.publish(place, aside.encode(), timeout=_PATIENCE_S)
        except HanseError as failed:
            _LOG.warning("message on %s could not be set aside: %s", subject, failed)


async def kept(bus: Bus) -> list[SetAside]:
    """What is set aside now, the oldest first."""
    return [SetAside.decode(record.data) for record in await bus.snapshot(_STREAM, SET_ASIDE.wildcard())]


def _sender(subject: str) -> tuple[str, str, str]:
    """(area, project, who) of a subject of the table."""
    values = subject.split(".")
    for row in SUBJECTS:
        names = row.pattern.split(".")
        if len(names) == len(values) and all(
            name == value or name.startswith("{") for name, value in zip(names, values, strict=True)
        ):
            tokens = row.parse(subject)
            area = names[2] if row.pattern.startswith("hanse.") else names[1]
            return area, tokens.get("project", _NOBODY), tokens.get("participant", _NOBODY)
    return "other", _NOBODY, _NOBODY
