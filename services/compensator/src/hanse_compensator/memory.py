"""What the compensator remembers: which set of a session it answered. Replicas share it by compare-and-set."""

from __future__ import annotations

import hashlib
import json

from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import MaskRecord, MaskRequest
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import MASK_RECORDS


class Memory:
    """The records of answered sessions. They are kept for ever: a seed that was summed once stays dangerous."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bucket = Bucket(bus, MASK_RECORDS, MaskRecord)
        self._clock = clock

    async def claim(self, request: MaskRequest) -> None:
        """Make the request's set the one that is answered in its session; the same request again is fine.

        Raises:
            HanseError: CONFLICT when another set, or the same with other seeds, has the session.
        """
        tokens = {"project": request.project, "run": request.run, "session": request.session}
        record = MaskRecord(
            **tokens,
            participants=tuple(member.participant for member in request.members),
            members=members_digest(request),
            at=self._clock.now(),
        )
        try:
            await self._bucket.create(record, **tokens)
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
            known = (await self._bucket.require(**tokens)).value
            if known.members != record.members:
                raise _other(known, record) from None


def members_digest(request: MaskRequest) -> str:
    """SHA-256 over who is in the set, with which sealed seeds and shapes."""
    members = [member.model_dump(mode="json") for member in request.members]
    return hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _other(known: MaskRecord, asked: MaskRecord) -> HanseError:
    what = "another set" if known.participants != asked.participants else "other seeds of the same set"
    return HanseError(
        ErrorCode.CONFLICT,
        f"session {asked.session} of run {asked.run}: {what} was answered already, and no second one ever is",
        hint="do the step again, in a new session",
    )
