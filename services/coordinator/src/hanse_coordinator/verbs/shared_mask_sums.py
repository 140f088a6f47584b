"""What the coordinator asks of several compensators: a look at the seals, ballots for a set, and the parts of its sum.

Nothing here is trusted with more than to go on: what it shows to whom is checked by those who are asked
(`hanse_privacy.compensators`). Whoever does not answer is gone, as long as enough others are there; every question may
be asked again, and has the same answer.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from hanse_coordinator.verbs.mask_sums import told
from hanse_coordinator.verbs.requests import Patience
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import CompensatorRecord, Compensators, MaskAnswer, MaskRequest, MaskSum, SealedSeed, SeedKey
from hanse_fabric.messages.masking import MaskPart, MaskStage
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import COMPENSATORS, SHARED_MASKS
from hanse_workflows.failures import RunFailure

_LOG = logging.getLogger(__name__)

_FIRST_WAIT_S = 5.0
"""For an answer, the first time that it is asked for; each time after that it is twice as long."""
_OTHERS_S = 1.0
"""That the others are given, once enough have answered."""
_AGAIN_S = 0.5
_TRANSIENT = frozenset({ErrorCode.UNAVAILABLE.code, ErrorCode.TIMEOUT.code, ErrorCode.CANCELLED.code})


class SharedMaskSums:
    """The sums of one run whose masks are shared."""

    def __init__(
        self, bus: Bus, clock: Clock, notices: Notices, *, project: str, run: str, patience: Patience
    ) -> None:  # fmt: skip
        self._bus, self._clock, self._notices = bus, clock, notices
        self._project, self._run, self._patience = project, run, patience
        self._silent: set[bytes] = set()

    async def of(
        self, session: str, round_number: int, members: tuple[SealedSeed, ...], group: Compensators
    ) -> MaskAnswer:
        """The parts of the sum, or whose seeds are the reason that there is none.

        Raises:
            RunFailure: TIMEOUT where too few compensators are there for as long as the run's patience lasts; any other
                refusal of so many that too few are left.
        """
        request = MaskRequest(
            project=self._project, run=self._run, session=session, members=members, compensators=group,
            stage=MaskStage.LOOK,
        )  # fmt: skip
        until = self._clock.monotonic() + self._patience.timeout * self._patience.tries
        wait = _FIRST_WAIT_S
        failed: dict[bytes, int] = {}
        while True:
            answer = await self._attempt(request, group, min(wait, self._patience.timeout), failed)
            if answer.code not in _TRANSIENT:
                owners = [base64.b64encode(key.owner).decode() for key in group.keys]
                return told(self._notices, answer, round_number, compensators=owners)
            if self._clock.monotonic() >= until:
                raise RunFailure(
                    ErrorCode.TIMEOUT,
                    f"session {session}: {answer.reason}",
                    hint=f"see that {group.needed} of the {len(group.owners)} compensators of this job are running",
                )
            _LOG.warning("masks of session %s of run %s: %s", session, self._run, answer.reason)
            await self._clock.sleep(_AGAIN_S)
            wait *= 2

    async def _attempt(
        self, request: MaskRequest, group: Compensators, wait: float, failed: dict[bytes, int]
    ) -> MaskAnswer:
        """One time from the look to the sum. A code of `_TRANSIENT` says that it is worth another."""
        owners = [key.owner for key in group.keys]
        looked = await self._ask(request, owners, wait, group.needed)
        if refusal := _too_few(request, looked, group):
            return refusal
        balloting = request.model_copy(update={"stage": MaskStage.BALLOT})
        cast = await self._ask(balloting, [owner for owner in owners if _well(looked, owner)], wait, group.needed)
        if refusal := _too_few(request, cast, group):
            return refusal
        ballots = {owner: answer.ballot for owner, answer in cast.items() if answer.ballot is not None}
        # Those who have failed least, so that who is slow or dies after its ballot is left out next time.
        voters = sorted(sorted(ballots, key=lambda owner: (failed.get(owner, 0), owners.index(owner)))[: group.needed])
        asking = request.model_copy(
            update={"stage": MaskStage.SUM, "ballots": tuple(ballots[owner] for owner in voters)}
        )
        summed = await self._ask(asking, voters, wait, len(voters))
        for owner in voters:
            if owner not in summed or summed[owner].sum is None:
                failed[owner] = failed.get(owner, 0) + 1
        if refusal := _too_few(request, summed, group):
            return refusal
        first, *more = (answer.sum for answer in summed.values() if answer.sum is not None)
        parts = tuple(MaskPart(update=part.update, tally=part.tally) for part in more)
        total = MaskSum(update=first.update, tally=first.tally, more=parts)
        return request.answered(sum=total)

    async def _ask(
        self, request: MaskRequest, owners: Iterable[bytes], wait: float, enough: int
    ) -> dict[bytes, MaskAnswer]:
        """What those say who answer in time, by owner. Once enough have said yes, the rest are waited for a moment; who
        did not answer the last time is not."""
        data = request.encode()
        asked = {asyncio.create_task(self._one(owner, data, wait)): owner for owner in owners}
        answers: dict[bytes, MaskAnswer] = {}
        pending = set(asked)
        until = self._clock.monotonic() + wait + _OTHERS_S
        try:
            while pending and (left := until - self._clock.monotonic()) > 0:
                pause = asyncio.create_task(self._clock.sleep(left))
                done, pending = await asyncio.wait({*pending, pause}, return_when=asyncio.FIRST_COMPLETED)
                pending.discard(pause)
                if pause not in done:
                    pause.cancel()
                for task in done - {pause}:
                    if (answer := task.result()) is not None:
                        answers[asked[task]] = answer
                if sum(not answer.code for answer in answers.values()) >= enough:
                    expected = any(asked[task] not in self._silent for task in pending)
                    until = min(until, self._clock.monotonic() + (_OTHERS_S if expected else 0.0))
        finally:
            for task in pending:
                task.cancel()
        self._silent = (self._silent - answers.keys()) | (set(asked.values()) - answers.keys())
        return {owner: answers[owner] for owner in sorted(answers)}

    async def _one(self, owner: bytes, data: bytes, wait: float) -> MaskAnswer | None:
        subject = SHARED_MASKS.of(compensator=owner.hex())
        try:
            return MaskAnswer.decode(await self._bus.request(subject, data, timeout=wait))
        except HanseError as error:
            _LOG.info("compensator %s does not answer: %s", owner.hex()[:16], error)
            return None


def _well(answers: Mapping[bytes, MaskAnswer], owner: bytes) -> bool:
    return owner in answers and not answers[owner].code


def _too_few(request: MaskRequest, answers: Mapping[bytes, MaskAnswer], group: Compensators) -> MaskAnswer | None:
    """Why it does not go on with these answers; None where it does."""
    well = [answer for answer in answers.values() if not answer.code]
    if len(well) >= group.needed:
        return None
    silent = len(group.keys) - len(answers)
    waiting = silent + sum(answer.code in _TRANSIENT for answer in answers.values())
    refusals = [answer for answer in answers.values() if answer.code and answer.code not in _TRANSIENT]
    if not refusals or len(well) + waiting >= group.needed:
        reason = f"{len(well)} of {len(group.owners)} compensators answered, {group.needed} are needed"
        return request.answered(code=ErrorCode.UNAVAILABLE.code, reason=reason)
    refused = sorted({name for answer in refusals for name in answer.refused})
    first = refusals[0]
    return request.answered(refused=tuple(refused), code=first.code, reason=first.reason)


async def announced_group(
    bus: Bus, names: tuple[str, ...], needed: int, now: datetime, step: timedelta
) -> Compensators:  # fmt: skip
    """Several compensators as they are announced, of which some may be gone. Sites trust only what their policies pin.

    Args:
        step: how long a step may take: a key that does not last so long belongs to one who no longer renews it.

    Raises:
        RunFailure: UNAVAILABLE where one was never announced as one of several, or too few have a key of the present;
            CONFLICT where two names have one key.
    """
    bucket = Bucket(bus, COMPENSATORS, CompensatorRecord)
    found: dict[bytes, SeedKey] = {}
    late: dict[bytes, str] = {}
    for name in names:
        entry = await bucket.get(name=name)
        key = None if entry is None else entry.value.seed_key
        if key is None:
            raise RunFailure(
                ErrorCode.UNAVAILABLE,
                f"secure_aggregation.compensators: {name}: a sealing key of the present is expected, none is announced",
                hint="start this compensator with HANSE_COMPENSATOR_IDENTITY",
            )
        if key.owner in found:
            raise RunFailure(ErrorCode.CONFLICT, f"secure_aggregation.compensators: {name} has the key of another one")
        found[key.owner] = key
        if key.until <= now + step:
            late[key.owner] = f"{name} until {key.until.isoformat(timespec='seconds')}"
    if len(found) - len(late) < needed:
        raise RunFailure(
            ErrorCode.UNAVAILABLE,
            f"secure_aggregation.compensators: sealing keys of {needed} that last for a step of "
            f"{step.total_seconds():.0f} s are expected; they are to be used: {', '.join(late.values())}",
            hint="see that these compensators run and that their clocks are right; a step may take half of "
            "HANSE_COMPENSATOR_KEY_HOURS",
        )
    keys = tuple(found[owner] for owner in sorted(found.keys() - late.keys()))
    return Compensators(needed=needed, keys=keys, gone=tuple(map(base64.b64encode, sorted(late))) or None)
