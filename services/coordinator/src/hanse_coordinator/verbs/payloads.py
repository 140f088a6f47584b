"""Payloads of answers that are too large for the journal: they stay on the bus, and the journal has their digests.

A masking protocol's shares are 20 KB of each of a hundred sites, needed until the sum is made and never again.
"""

from __future__ import annotations

import hashlib
import logging

from hanse_coordinator.verbs.steps import Steps
from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Result
from hanse_fabric.subjects import RESULT, Stream
from hanse_workflows.outcomes import Gathered

_LOG = logging.getLogger(__name__)
_RESULTS: Stream = RESULT.stream or Stream("")
_REPLAYED_STEPS_TIDIED = 4


class KeptPayloads:
    """The payloads of one run's steps that were gathered with `Ask.keep`."""

    def __init__(self, bus: Bus, steps: Steps, *, project: str, run: str) -> None:
        self._bus, self._steps, self._project, self._run = bus, steps, project, run

    async def of(self, step: str, gathered: Gathered) -> dict[str, bytes]:
        """The payloads of the step's answers, by participant: those at hand, and from the bus after a restart.

        Raises:
            HanseError: NOT_FOUND when they are not on the bus any more.
        """
        found = {answer.participant: answer.payload for answer in gathered.answers if answer.payload is not None}
        wanted = {
            answer.participant: answer.payload_digest
            for answer in gathered.answers
            if answer.payload_digest is not None and answer.participant not in found
        }
        if wanted:
            pattern = RESULT.wildcard(project=self._project, run=self._run)
            for record in await self._bus.snapshot(_RESULTS, pattern):
                name = RESULT.parse(record.subject)["participant"]
                if name in wanted and (payload := _payload(record.data, wanted[name])) is not None:
                    found[name] = payload
                    del wanted[name]
        if wanted:
            raise HanseError(
                ErrorCode.NOT_FOUND, f"step {step}: what {', '.join(sorted(wanted))} answered is not there any more"
            )
        return found

    def release(self, step: str) -> None:
        """The step's payloads are not needed any more. What a repeated attempt has left, the run's end removes."""
        self._steps.when_live(self._purge(step), keep=_REPLAYED_STEPS_TIDIED)

    async def _purge(self, step: str) -> None:
        await self._bus.purge(_RESULTS, RESULT.wildcard(project=self._project, run=self._run, step=step))


def _payload(data: bytes, digest: str) -> bytes | None:
    """The payload with this digest, of a result that was verified when it came."""
    try:
        payload = Result.decode(data).payload
    except HanseError as error:
        _LOG.warning("a stored result cannot be read: %s", error)
        return None
    return payload if payload is not None and hashlib.sha256(payload).hexdigest() == digest else None
