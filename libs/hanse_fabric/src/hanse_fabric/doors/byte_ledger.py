"""The byte ledger: what the hub saw pass between itself and each site, by run, round, link and direction.

Each process counts what it takes and gives itself, and writes down once a second what has passed since; whoever reads
it adds it up. A message counts with its content and its headers, as NATS counts; an object that rests in the store
counts when a link to it is given. A process that is killed loses its last second.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.sent_bytes import LinkBytes, SentBytes
from hanse_fabric.subjects import SENT_BYTES
from hanse_fabric.telemetry.catalogue import LINK_BYTES

_LOG = logging.getLogger(__name__)
_EVERY_S = 1.0
_MOST_STEPS = 100_000
_ROUND = re.compile(r"r(\d{1,9})-")
_HEADERS_BEGIN, _HEADERS_END, _BETWEEN = len("NATS/1.0\r\n"), len("\r\n"), len(": \r\n")


def message_bytes(content: bytes, headers: Mapping[str, str]) -> int:
    """Bytes that a message has on the wire, without the protocol's own line that names its subject. Pure."""
    if not headers:
        return len(content)
    each = sum(len(name.encode()) + len(value.encode()) + _BETWEEN for name, value in headers.items())
    return len(content) + _HEADERS_BEGIN + each + _HEADERS_END


def round_of(step: str) -> int:
    """The round of a step's key; 0 where it belongs to none. Pure."""
    found = _ROUND.match(step)
    return int(found[1]) if found else 0


class Passed(NamedTuple):
    """`LinkBytes` of one message: every message is counted, so this is checked only where it is written down."""

    bus_up: int = 0
    bus_down: int = 0
    store_up: int = 0
    store_down: int = 0

    def and_also(self, other: Passed) -> Passed:
        return Passed(*map(operator.add, self, other))


class ByteLedger:
    """What one process counts."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str, str, str], None] = OrderedDict()
        self._unwritten: dict[tuple[str, str, int], dict[str, Passed]] = {}
        self._dirty = asyncio.Event()

    def opened(self, project: str, participant: str, run: str, step: str) -> None:
        """The step was found open for the participant: what it is sent from now on counts to the run.

        What a site only says that it belongs to a run counts to none, for it could say any."""
        key = (project, participant, run, step)
        self._open[key] = None
        self._open.move_to_end(key)
        if len(self._open) > _MOST_STEPS:
            self._open.popitem(last=False)

    def count(
        self, project: str, participant: str, passed: Passed, *, run: str | None = None, step: str | None = None
    ) -> None:
        """Count what has passed, to the run where the step was `opened`."""
        known = run is not None and step is not None and (project, participant, run, step) in self._open
        for (link, direction), size in zip(_WAYS, passed, strict=True):
            if size:
                LINK_BYTES.add(size, link=link, direction=direction, part="runs" if known else "else")
        if not known or run is None or step is None:
            return
        self._add((project, run, round_of(step)), {participant: passed})

    def _add(self, key: tuple[str, str, int], sites: Mapping[str, Passed]) -> None:
        found = self._unwritten.setdefault(key, {})
        for name, passed in sites.items():
            found[name] = found.get(name, _NOTHING).and_also(passed)
        self._dirty.set()

    async def write(self, bus: Bus) -> None:
        """Write down what has passed, once a second, until cancelled."""
        while True:
            await self._dirty.wait()
            await bus.clock.sleep(_EVERY_S)
            self._dirty.clear()
            await self.flush(bus)

    async def flush(self, bus: Bus) -> None:
        """Write down what has passed. What cannot be written now is written with what comes next."""
        unwritten, self._unwritten = self._unwritten, {}
        for key, sites in unwritten.items():
            project, run, number = key
            counted = {name: LinkBytes(**passed._asdict()) for name, passed in sites.items()}
            record = SentBytes(project=project, run=run, round=number, sites=counted)
            subject = SENT_BYTES.of(project=project, run=run, round=str(number))
            try:
                await bus.publish(subject, record.encode(), message_id=secrets.token_hex(16), timeout=10.0)
            except HanseError as error:
                _LOG.warning("bytes of run %s are not written down: %s", run, error)
                if error.code is not ErrorCode.TOO_LARGE:
                    self._add(key, sites)


_WAYS = tuple(name.split("_") for name in Passed._fields)
_NOTHING = Passed()
_LEDGERS: WeakKeyDictionary[Bus, ByteLedger] = WeakKeyDictionary()


def ledger_of(bus: Bus) -> ByteLedger:
    """The ledger of a process: of its connection, which all of its parts have."""
    return _LEDGERS.setdefault(bus, ByteLedger())


def by_round(records: Iterable[SentBytes]) -> dict[int, dict[str, LinkBytes]]:
    """All processes' counts of a run, added up: by round, by participant. Pure."""
    found: dict[int, dict[str, LinkBytes]] = {}
    for record in records:
        sites = found.setdefault(record.round, {})
        for name, passed in record.sites.items():
            sites[name] = sites.get(name, LinkBytes()) + passed
    return found
