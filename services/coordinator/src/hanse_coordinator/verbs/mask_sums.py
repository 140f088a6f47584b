"""What the coordinator asks of the compensator: the sum of the masks of a session's participants."""

from __future__ import annotations

from typing import Any

from hanse_coordinator.refusals import count_refusal
from hanse_coordinator.verbs.requests import Patience, Requests
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import CompensatorRecord, MaskAnswer, MaskRequest, SealedSeed
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import COMPENSATORS, MASK_ANSWER, MASK_REQUEST
from hanse_workflows.failures import RunFailure


class MaskSums:
    """The mask sums of one run. What is asked and answered is sealed, or sums: seeds are not seen here."""

    def __init__(self, bus: Bus, clock: Clock, notices: Notices, *, project: str, run: str, patience: Patience) -> None:
        self._project, self._run, self._notices = project, run, notices
        self.requests = Requests(
            bus, clock, project=project, run=run, questions=MASK_REQUEST, answers=MASK_ANSWER, answer=MaskAnswer,
            named_by="session", who="compensators", patience=patience,
        )  # fmt: skip

    async def of(self, session: str, round_number: int, members: tuple[SealedSeed, ...]) -> MaskAnswer:
        """The compensator's answer: a sum, or whose seeds are the reason that there is none.

        Raises:
            RunFailure: any other refusal.
        """
        request = MaskRequest(project=self._project, run=self._run, session=session, members=members)
        answer = await self.requests.outcome(session, request)
        self.requests.recovered()
        return told(self._notices, answer, round_number)


def told(notices: Notices, answer: MaskAnswer, round_number: int, **detail: Any) -> MaskAnswer:
    """Tell of an answer; returns it.

    Raises:
        RunFailure: for a refusal of which nobody's seed is the reason.
    """
    session = answer.session
    detail |= {"session": session, "round": round_number, "participants": list(answer.participants)}
    if answer.sum is not None:
        notices.audit("masks.sum", session, **detail)
        return answer
    count_refusal("masks", answer.code)
    notices.audit("masks.refuse", session, code=answer.code, reason=answer.reason, **detail)
    notices.event(
        "refused", f"{session}/masks", round=round_number, step=session, code=answer.code, reason=answer.reason,
        participants=list(answer.refused),
    )  # fmt: skip
    if not answer.refused:
        raise RunFailure(ErrorCode.of(answer.code), f"session {session}: the compensator refused: {answer.reason}")
    return answer


async def announced(bus: Bus) -> bytes:
    """The key of the compensator that announced itself last. Sites trust only what their policies pin.

    Raises:
        RunFailure: UNAVAILABLE where there is none.
    """
    listed = await Bucket(bus, COMPENSATORS, CompensatorRecord).list()
    found = [entry for entry in listed if entry.value.seed_key is None]  # the others share masks, and have no whole one
    if not found:
        raise RunFailure(
            ErrorCode.UNAVAILABLE,
            "secure_aggregation.mode: compensator, but no compensator has announced itself to this hub",
            hint="start a compensator, or use mode pairwise",
        )
    return max(found, key=lambda entry: entry.value.at).value.public_key
