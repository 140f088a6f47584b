"""Noise that sites draw for each other (`privacy.noise: oblivious`), before the step that it is added in.

ADVERTISE a key for the session -> SHARE sealed noise -> the step itself, with what the others have sent. The hub
relays what it cannot open. Who drops out on the way is not asked further; the others' noise stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hanse_coordinator.workflow.context import Ask, RunContext
from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.outcomes import Gathered
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import TaskKind
from hanse_privacy.noise.exchange_messages import noise_request, relay

_PROTOCOL_S = 60.0
"""How long the exchange's own steps are open at most: they take a site milliseconds, once it is there."""


def exchanges(ask: Ask) -> bool:
    """Whether the sites that are asked exchange noise first."""
    return ask.privacy is not None and ask.privacy.privacy.noise == "oblivious" and ask.masking is not None


def share_step(session: str) -> str:
    """The step whose payloads are to be released when the masked step is over."""
    return f"{session}-noise"


async def exchanged(run: RunContext, ask: Ask, session: str) -> Ask:
    """The same, to those who have drawn noise for each other, with what each was sent.

    Raises:
        RunFailure: QUORUM when too few take part.
    """
    deadline = min(ask.deadline, _PROTOCOL_S)
    own = replace(ask, deadline=deadline, enough=0, payload=None)
    advertised = await run.gather(f"{session}-noise-keys", replace(own, kind=TaskKind.ADVERTISE, model=None))
    keys = {answer.participant: answer.payload for answer in advertised.answers if answer.payload is not None}
    request, refused = noise_request(
        run.project, run.run, session, keys, await run.enrolled(f"{session}-noise-roster")
    )  # fmt: skip
    _tell(run, ask, session, refused, "its key is not signed with its enrolled key")
    if request is None or len(request.members) < ask.needed:
        left = 0 if request is None else len(request.members)
        raise RunFailure(
            ErrorCode.QUORUM, f"session {session}: {left} sites can exchange noise, {ask.needed} are needed"
        )
    data = request.encode()

    async def to_all(_: str) -> bytes:
        return data

    names = tuple(member.participant for member in request.members)
    step = share_step(session)
    shared = await run.gather(step, replace(own, kind=TaskKind.SHARE, to=names, payload=to_all, keep=True))
    try:
        given, refused = relay(request, await run.payloads(step, shared))
    except RunFailure as failure:
        if failure.code is not ErrorCode.NOT_FOUND:
            raise
        # It was released when the masked step was over. A replay comes by here and sends it to nobody.
        return _passed_on(ask, shared, failure)
    _tell(run, ask, session, refused, "it has not sent noise for every other site")

    async def to_each(name: str) -> bytes:
        return given[name]

    return replace(ask, to=tuple(sorted(given)), payload=to_each)


def _passed_on(ask: Ask, shared: Gathered, lost: RunFailure) -> Ask:
    """The same, to those whose noise was passed on before; the failure is for whoever would send it again."""

    async def to_each(_: str) -> bytes:
        raise lost

    return replace(ask, to=tuple(answer.participant for answer in shared.answers), payload=to_each)


def _tell(run: RunContext, ask: Ask, session: str, refused: Iterable[str], reason: str) -> None:
    for name in refused:
        run.note(
            "refused", f"{session}/noise/{name}", round=ask.round, step=session, participant=name, code="tampered",
            reason=reason,
        )  # fmt: skip
