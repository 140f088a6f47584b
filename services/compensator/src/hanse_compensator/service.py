"""The compensator on the bus: takes requests from the queue, checks them, remembers them, answers with sums of masks.

An answer is a function of its request: a request that comes again, after a crash or because somebody asks again, gets
the same bytes. Every refusal gives its reason, and no message or log line holds a seed or a mask.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from hanse_compensator.members import Opened, RefusedError, SetLimits, open_members
from hanse_compensator.memory import Memory
from hanse_compensator.openers import WithOneKey
from hanse_compensator.own_memory import OwnMemory
from hanse_compensator.sums import TRANSIENT, MaskSums, made_sums, shortened
from hanse_compensator.works import Claim
from hanse_fabric import __version__, telemetry
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock, SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import CompensatorRecord, MaskRequest, SeedKey
from hanse_fabric.messages.objects import INLINE_LIMIT
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.queue import QueueWorker
from hanse_fabric.records import Bucket
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.subjects import COMPENSATORS, MASK_ANSWER, MASK_REQUEST, MASKS, PARTICIPANTS
from hanse_fabric.telemetry import catalogue
from hanse_privacy.works.chain import keys_of

log = logging.getLogger(__name__)


class Compensator:
    """Works the queue of mask requests.

    Args:
        store: where large sums go; None where all are small.
        own: memory beside the one on the bus; None: none.
        jobs: large sums made at once; further ones are not taken from the queue meanwhile.
        small: others done at once.
    """

    def __init__(
        self,
        bus: Bus,
        store: ObjectStore | None,
        key: SealingKey,
        *,
        limits: SetLimits | None = None,
        own: OwnMemory | None = None,
        jobs: int = 1,
        small: int = 4,
        clock: Clock | None = None,
    ) -> None:
        self._bus, self._store, self._key = bus, store, key
        self._limits, self._clock = limits or SetLimits(), clock or SystemClock()
        self._memory = Memory(bus, self._clock, own)
        self._roster = Bucket(bus, PARTICIPANTS, ParticipantRecord)
        self._large, self._small = asyncio.Semaphore(jobs), asyncio.Semaphore(small)
        self._stop = threading.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; what is unfinished then goes back to the queue."""
        for outcome in ("summed", ErrorCode.CONFLICT.code):
            catalogue.MASK_REQUESTS.add(0, outcome=outcome)
        worker = QueueWorker(
            self._bus, MASK_REQUEST, read=MaskRequest.decode, slot=self._slot, answer=self._answer, span="masks"
        )
        await worker.run(stopping, on_stop=self._stop.set)

    def _slot(self, request: MaskRequest) -> asyncio.Semaphore:
        shape = request.members[0].update
        return self._small if shape is None or shape.nbytes <= INLINE_LIMIT else self._large

    async def _answer(self, request: MaskRequest) -> None:
        began = self._clock.monotonic()
        try:
            sums = await self._sums(request)
        except HanseError as error:
            if error.code in TRANSIENT:
                raise
            await self._refuse(request, error)
            return
        for digest, data in sums.small.items():
            subject = MASKS.of(project=request.project, run=request.run, session=request.session, digest=digest)
            await self._bus.publish(subject, data)
        await self._publish(request, sum=sums.sum)
        catalogue.MASK_REQUESTS.add(outcome="summed")
        catalogue.MASK_SECONDS.observe(self._clock.monotonic() - began)
        catalogue.MASK_BYTES.add(_masked_bytes(request))

    async def _sums(self, request: MaskRequest) -> MaskSums:
        entries = await self._roster.list(project=request.project)
        roster = {entry.value.participant: entry.value for entry in entries}
        opened = await asyncio.to_thread(open_members, request, roster, WithOneKey(self._key), self._limits)
        # The set is remembered before it is summed. A crash between the two costs nothing; in the other order it would
        # cost secrecy.
        await self._memory.claim(request)
        if opened.work is not None:
            keys = keys_of(roster[member.participant].public_key for member in request.members)
            await self._memory.claim_set(Claim(opened.work, keys, opened.gap, opened.tags))
        return await asyncio.to_thread(self._make, request, opened)

    def _make(self, request: MaskRequest, opened: Opened) -> MaskSums:
        key = f"masks/{request.project}/{request.run}/{request.session}/update"
        return made_sums(opened, self._store, key, self._stop)

    async def _refuse(self, request: MaskRequest, error: HanseError) -> None:
        log.warning(
            "run %s: the masks of session %s are not summed: %s", request.run, request.session, error,
            extra={"project": request.project, "code": error.code.code},
        )  # fmt: skip
        refused = error.participants if isinstance(error, RefusedError) else ()
        await self._publish(request, refused=refused, code=error.code.code, reason=shortened(str(error)))
        catalogue.MASK_REQUESTS.add(outcome=error.code.code)

    async def _publish(self, request: MaskRequest, **outcome: object) -> None:
        answer = request.answered(**outcome)
        subject = MASK_ANSWER.of(project=request.project, run=request.run, session=request.session)
        # Without a message id: the hub may have purged the first answer before it asks again, and must be answered
        # again.
        await self._bus.publish(subject, answer.encode(), headers=telemetry.inject())


async def announce(bus: Bus, name: str, key: bytes, clock: Clock, seed_key: SeedKey | None = None) -> None:
    """Make the public key known to the coordinator, which tells it to sites; they trust the one that they pin.

    Args:
        key: its X25519 key, 32 bytes.
        seed_key: the same, signed, of a compensator that is one of several.
    """
    bucket = Bucket(bus, COMPENSATORS, CompensatorRecord)
    record = CompensatorRecord.model_construct(public_key=key, version=__version__, at=clock.now(), seed_key=seed_key)
    try:
        await bucket.create(record, name=name)
    except HanseError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise

        def renewed(known: CompensatorRecord) -> CompensatorRecord:
            same = (known.public_key, known.version) == (record.public_key, record.version)
            return known if same else record

        await bucket.change(renewed, name=name)


def _masked_bytes(request: MaskRequest) -> int:
    return sum(8 * member.tally + (member.update.nbytes if member.update else 0) for member in request.members)
