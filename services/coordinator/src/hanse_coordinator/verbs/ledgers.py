"""Heads of the sites' privacy ledgers and logs of what left: kept as they come with answers, handed back with tasks.

A head is in the site's own signature, so that nobody else, the hub included, can tell a site that it lacks something.
"""

from __future__ import annotations

import logging

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import LedgerHead, LedgerRecord
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import LEDGERS
from hanse_fabric.waiting import all_of

_EVERY_S = 60.0
_LOG = logging.getLogger(__name__)


class Ledgers:
    """The newest heads of one project's sites that any of its runs has seen."""

    def __init__(self, bus: Bus, project: str) -> None:
        self._bucket, self._project, self._clock = Bucket(bus, LEDGERS, LedgerRecord), project, bus.clock
        self._fresh: dict[str, LedgerRecord] = {}
        self._outboxes: dict[str, LedgerHead | None] = {}
        self._kept = float("-inf")

    async def newest(self, participant: str) -> LedgerHead | None:
        """What a site is told of its ledger with a private task."""
        known = await self._bucket.get(project=self._project, participant=participant)
        return None if known is None else known.value.newest

    async def outbox(self, participant: str) -> LedgerHead | None:
        """What a site is told of its log with any task. It is evidence: no task waits for records that are away."""
        if participant not in self._outboxes:
            try:
                known = await self._bucket.get(project=self._project, participant=participant)
            except HanseError as error:
                _LOG.warning("the head of %s's log is not known: %s", participant, error)
                return None
            self._outboxes.setdefault(participant, None if known is None else known.value.outbox)
        return self._outboxes[participant]

    def saw(self, participant: str, *, ledger: LedgerHead | None, outbox: LedgerHead | None) -> None:
        """Take in what came with an answer that was verified; `keep` writes it down."""
        if ledger is None and outbox is None:
            return
        seen = LedgerRecord.model_construct(newest=ledger, outbox=outbox)
        self._fresh[participant] = _newer(seen, self._fresh.get(participant, LedgerRecord()))
        known = LedgerRecord.model_construct(outbox=self._outboxes.get(participant))
        self._outboxes[participant] = _newer(seen, known).outbox

    async def keep(self, *, now: bool) -> None:
        """Write down what has come since. What a coordinator that dies has not written comes with later answers.

        Args:
            now: False: once a minute is enough.
        """
        if not now and self._clock.monotonic() - self._kept < _EVERY_S:
            return
        self._kept = self._clock.monotonic()
        fresh, self._fresh = self._fresh, {}
        await all_of(self._keep(participant, seen) for participant, seen in fresh.items())

    async def _keep(self, participant: str, seen: LedgerRecord) -> None:
        tokens = {"project": self._project, "participant": participant}
        try:
            try:
                await self._bucket.create(seen, **tokens)
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
                await self._bucket.change(lambda known: _newer(seen, known), **tokens)
        except HanseError as error:
            _LOG.warning("the heads of %s are not written down: %s", participant, error)


def _newer(one: LedgerRecord, other: LedgerRecord) -> LedgerRecord:
    """Of both logs the head with more entries."""
    heads = ((one.newest, other.newest), (one.outbox, other.outbox))
    newest, outbox = (max(filter(None, pair), key=lambda head: head.entries, default=None) for pair in heads)
    return LedgerRecord.model_construct(newest=newest, outbox=outbox)
