"""Heads of the sites' privacy ledgers: kept as they come with answers, handed back with private tasks.

A head is in the site's own signature, so that nobody else, the hub included, can tell a site that it lacks something.
"""

from __future__ import annotations

import logging

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import LedgerHead, LedgerRecord
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import LEDGERS

_LOG = logging.getLogger(__name__)


class Ledgers:
    """The newest heads of one project's sites that any of its runs has seen."""

    def __init__(self, bus: Bus, project: str) -> None:
        self._bucket, self._project = Bucket(bus, LEDGERS, LedgerRecord), project
        self._fresh: dict[str, LedgerHead] = {}

    async def newest(self, participant: str) -> LedgerHead | None:
        """What a site is told with a private task."""
        known = await self._bucket.get(project=self._project, participant=participant)
        return None if known is None else known.value.newest

    def saw(self, participant: str, head: LedgerHead | None) -> None:
        """Take in what came with an answer that was verified; `keep` writes it down."""
        if head is not None:
            self._fresh[participant] = head

    async def keep(self) -> None:
        """Write down what has come since. What a coordinator that dies has not written comes with later answers."""
        fresh, self._fresh = self._fresh, {}
        for participant, head in fresh.items():
            tokens = {"project": self._project, "participant": participant}
            try:
                await self._keep(LedgerRecord.model_construct(newest=head), tokens)
            except HanseError as error:
                _LOG.warning("the ledger's head of %s is not written down: %s", participant, error)

    async def _keep(self, record: LedgerRecord, tokens: dict[str, str]) -> None:
        try:
            await self._bucket.create(record, **tokens)
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise

            def newer(known: LedgerRecord) -> LedgerRecord:
                return record if record.newest.entries > known.newest.entries else known

            await self._bucket.change(newer, **tokens)
