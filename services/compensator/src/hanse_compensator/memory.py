"""What the compensator remembers: which set of a session it answered, and over which sets it summed a work.

Replicas share it on the bus, by compare-and-set. What the hub could make undone there is in a file of their own, too.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging

from hanse_compensator.own_memory import OwnMemory
from hanse_compensator.works import Claim
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import MaskRecord, MaskRequest, WorkRecord
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import MASK_RECORDS, WORK_RECORDS
from hanse_privacy.works.chain import SummedSets
from hanse_privacy.works.codec import decode_whole, encode_whole

log = logging.getLogger(__name__)

_TRIES = 50


_OF_0_1_0 = {"update": None, "parts": None}
"""Fields that were always in the digest."""


class Memory:
    """The records of answered sessions. They are kept for ever: a second set of any session would tell a difference.

    Args:
        own: what the bus's keepers cannot make undone; None: the bus is trusted with it.
    """

    def __init__(self, bus: Bus, clock: Clock, own: OwnMemory | None = None) -> None:
        self._own = own
        self._bucket = Bucket(bus, MASK_RECORDS, MaskRecord)
        self._works = Bucket(bus, WORK_RECORDS, WorkRecord)
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
                what = "another set" if known.participants != record.participants else "other seeds of the same set"
                raise _conflict(request, what) from None
        if self._own is not None and not await asyncio.to_thread(self._own.claim, request, record.members):
            log.error("the hub's memory of session %s of run %s is not ours", request.session, request.run)
            raise _conflict(request, "another set, which the hub has forgotten,")

    async def claim_set(self, claim: Claim) -> None:
        """Make the set one of its work's, in the own file and then on the bus.

        Raises:
            HanseError: what `WorkFile.claim` raises.
        """
        name = claim.work.hex()
        for _ in range(_TRIES):
            entry = await self._works.get(work=name)
            known = SummedSets() if entry is None else decode_whole(entry.value.keys, entry.value.sets)
            if self._own is None:
                work = known.admit(claim.members, claim.gap)
            else:
                work = await asyncio.to_thread(self._own.works.claim, claim, known)
            if work == known:
                return
            keys, sets = map(base64.b64encode, encode_whole(work))
            record = WorkRecord(work=name, keys=keys, sets=sets)
            try:
                if entry is None:
                    await self._works.create(record, work=name)
                else:
                    await self._works.update(record, entry.revision, work=name)
            except HanseError as error:
                if error.code is not ErrorCode.CONFLICT:
                    raise
            else:
                return
        raise HanseError(ErrorCode.UNAVAILABLE, f"work {name[:16]}: other compensators changed it all the time")


def members_digest(request: MaskRequest) -> str:
    """SHA-256 over who is in the set, with which sealed seeds and shapes.

    It is the same in every release that understands the request: what is remembered outlives an upgrade, and several
    compensators are not upgraded at once. So a field that has come since 0.1.0 is in it where it says something.
    """
    members = [_OF_0_1_0 | member.model_dump(mode="json", exclude_none=True) for member in request.members]
    return hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _conflict(request: MaskRequest, what: str) -> HanseError:
    return HanseError(
        ErrorCode.CONFLICT,
        f"session {request.session} of run {request.run}: {what} was answered already, and no second one ever is",
        hint="do the step again, in a new session",
    )
