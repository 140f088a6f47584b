"""One of several compensators on the bus (`hanse_privacy.compensators`): looks at seals, casts ballots, sums its part.

Each has a memory and keys of its own, which neither the hub nor the others can change. An answer is a function of its
request: one that comes again is answered alike, and while it is being worked on, it waits for the same work.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from hanse_compensator.members import Opened, RefusedError, SetLimits, open_members
from hanse_compensator.memory import members_digest
from hanse_compensator.openers import AsOneOfSeveral
from hanse_compensator.own_memory import OwnMemory
from hanse_compensator.rotating_keys import RotatingKeys
from hanse_compensator.sums import MaskSums, made_sums, shortened
from hanse_compensator.works import Claim
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock, SystemClock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.masking import Compensators, MaskAnswer, MaskRequest, MaskStage
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.records import Bucket
from hanse_fabric.store.port import ObjectStore
from hanse_fabric.subjects import MASKS, PARTICIPANTS, SHARED_MASKS
from hanse_privacy.compensators.ballots import cast, check_ballots
from hanse_privacy.compensators.keys import digest_of, sharing_of
from hanse_privacy.compensators.shares import Sharing
from hanse_privacy.works.chain import Members, SummedSets, keys_of

log = logging.getLogger(__name__)

Roster = Mapping[str, ParticipantRecord]


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """What a request means to this compensator.

    Attributes:
        digest: of the set that is asked about: project, run, session and members.
        opener: with the key that the members have sealed to.
    """

    request: MaskRequest
    group: Compensators
    digest: bytes
    opener: AsOneOfSeveral

    @property
    def sharing(self) -> Sharing:
        return sharing_of(self.group)


class SharedSums:
    """Answers what it is asked as one of several.

    Args:
        store: where large sums go; None where all are small.
        own: its memory.
        at_once: how many requests are worked on at once; further ones wait.
    """

    def __init__(
        self, bus: Bus, store: ObjectStore | None, owner: SigningKey, keys: RotatingKeys, own: OwnMemory, *,
        limits: SetLimits | None = None, clock: Clock | None = None, at_once: int = 2,
    ) -> None:  # fmt: skip
        self._bus, self._store, self._owner, self._keys, self._own = bus, store, owner, keys, own
        self._limits, self._clock = limits or SetLimits(), clock or SystemClock()
        self._roster = Bucket(bus, PARTICIPANTS, ParticipantRecord)
        self._slots = asyncio.Semaphore(at_once)
        self._stop = threading.Event()
        self._open: dict[bytes, asyncio.Task[bytes]] = {}

    async def run(self, stopping: asyncio.Event) -> None:
        """Answer until `stopping` is set."""
        subject = SHARED_MASKS.of(compensator=self._owner.public_bytes.hex())
        serving = await self._bus.serve(subject, self._handle, group="compensator")
        try:
            await stopping.wait()
        finally:
            self._stop.set()
            await serving.stop()
            for task in self._open.values():
                task.cancel()

    async def _handle(self, _: str, data: bytes) -> bytes:
        key = hashlib.sha256(data).digest()
        task = self._open.get(key)
        if task is None:
            task = self._open[key] = asyncio.create_task(self._answered(data))
            task.add_done_callback(lambda _: self._open.pop(key, None))
        return await asyncio.shield(task)

    async def _answered(self, data: bytes) -> bytes:
        async with self._slots:
            return (await self.answer(MaskRequest.decode(data))).encode()

    async def answer(self, request: MaskRequest) -> MaskAnswer:
        """What is asked for, or why there is none. What is worth another try is among the reasons, by its code."""
        try:
            return request.answered(**await self._outcome(request))
        except HanseError as error:
            log.warning(
                "run %s: the masks of session %s are not summed: %s", request.run, request.session, error,
                extra={"project": request.project, "code": error.code.code},
            )  # fmt: skip
            refused = error.participants if isinstance(error, RefusedError) else ()
            return request.answered(refused=refused, code=error.code.code, reason=shortened(str(error)))

    async def _outcome(self, request: MaskRequest) -> dict[str, object]:
        asked = await asyncio.to_thread(self._asked, request)
        entries = await self._roster.list(project=request.project)
        roster = {entry.value.participant: entry.value for entry in entries}
        if request.stage is MaskStage.SUM:
            sums = await asyncio.to_thread(self._sum, asked, roster)
            for digest, data in sums.small.items():
                subject = MASKS.of(project=request.project, run=request.run, session=request.session, digest=digest)
                await self._bus.publish(subject, data)
            return {"sum": sums.sum}
        opened = await asyncio.to_thread(open_members, request, roster, asked.opener, self._limits)
        if request.stage is MaskStage.LOOK:
            return {}
        return {"ballot": await asyncio.to_thread(self._cast, asked, opened, roster)}

    def _asked(self, request: MaskRequest) -> OwnRequest:
        """Find this compensator's place, and the key that it was asked with.

        Raises:
            HanseError: INVALID_INPUT where it is not one of the group; GONE where its key is destroyed.
        """
        group = request.compensators
        if group is None or request.stage is None:
            raise invalid("compensators", group, "several, and a stage")
        digest = digest_of(group)
        present = [key.owner for key in group.keys]
        if self._owner.public_bytes not in present:
            raise invalid("compensators", "others", f"{self._owner.public_bytes.hex()[:16]}... among them")
        seal, place = present.index(self._owner.public_bytes), group.owners.index(self._owner.public_bytes)
        private = self._keys.private(group.keys[seal].key, self._clock.now())
        opener = AsOneOfSeveral(private, seal, place, digest, len(present), len(sharing_of(group).held_by(place)))
        named = "\x1f".join((request.project, request.run, request.session)).encode()
        asked = hashlib.sha256(named).digest() + bytes.fromhex(members_digest(request))
        return OwnRequest(request, group, hashlib.sha256(asked).digest(), opener)

    def _cast(self, asked: OwnRequest, opened: Opened, roster: Roster) -> object:
        """Remember the set, then sign a ballot for it. Blocks."""
        request = asked.request
        if not self._own.claim(request, members_digest(request)):
            raise HanseError(
                ErrorCode.CONFLICT,
                f"session {request.session} of run {request.run}: this compensator has voted for another set",
                hint="do the step again, in a new session",
            )
        work = _work(opened)
        members = _members(request, roster)
        self._own.works.claim(Claim(work, members, opened.gap, opened.tags), SummedSets())
        return cast(self._owner, asked.digest, asked.group, self._own.works.known((work, *opened.tags)))

    def _sum(self, asked: OwnRequest, roster: Roster) -> MaskSums:
        """This one's part of the sum, after the ballots are checked. Blocks."""
        request, opener = asked.request, asked.opener
        opened = open_members(request, roster, opener, self._limits)
        members = _members(request, roster)
        voters = check_ballots(request.ballots or (), asked.digest, asked.group, members, opened.gap)
        if opener.place not in voters:
            raise HanseError(ErrorCode.QUORUM, "ballots: this compensator's own is not among them")
        held, dealt = asked.sharing.held_by(opener.place), asked.sharing.dealt(voters)[opener.place]
        chosen = [held.index(seed) for seed in dealt]
        count = len(held)
        seeds = tuple(seed for at, seed in enumerate(opened.seeds) if at % count in chosen)
        mine = Opened(seeds, opened.update, opened.tally, work=opened.work, tags=opened.tags, gap=opened.gap)
        key = f"masks/{request.project}/{request.run}/{request.session}/update-{opener.place}"
        return made_sums(mine, self._store, key, self._stop)


def _work(opened: Opened) -> bytes:
    if opened.work is None:
        raise HanseError(ErrorCode.INTERNAL, "a bound seal without a work")
    return opened.work


def _members(request: MaskRequest, roster: Roster) -> Members:
    return keys_of(roster[member.participant].public_key for member in request.members)
