"""Noise that sites draw for each other (`privacy.noise: oblivious`), before the step that it is added in.

ADVERTISE a key for the session -> SHARE sealed noise -> the step itself, with what the others have sent. The hub
relays what it cannot open. Who drops out on the way is not asked further; the others' noise stays whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import TaskKind
from hanse_privacy.noise.exchange_messages import NoiseRequest, noise_request, relay
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import gather
from hanse_workflows.masking.protocols import work_of
from hanse_workflows.outcomes import Gathered
from hanse_workflows.quorum import too_few
from hanse_workflows.verbs import Body, Verbs

_PROTOCOL_S = 60.0
"""How long the exchange's own steps are open at most: they take a site milliseconds, once it is there."""


def exchanges(ask: Ask) -> bool:
    """Whether the sites that are asked exchange noise first."""
    if ask.kind is TaskKind.EVALUATE:
        return False
    return ask.privacy is not None and ask.privacy.privacy.noise == "oblivious" and ask.masking is not None


def share_step(session: str) -> str:
    """The step whose payloads are to be released when the masked step is over."""
    return f"{session}-noise"


async def exchanged(run: Verbs, ask: Ask, session: str) -> Ask:
    """The same, to those who have drawn noise for each other, with what each was sent.

    Raises:
        RunFailure: QUORUM when too few take part.
    """
    deadline = min(ask.deadline, _PROTOCOL_S)
    own = replace(ask, deadline=deadline, enough=0, payload=None)
    advertised = await gather(run, f"{session}-noise-keys", replace(own, kind=TaskKind.ADVERTISE, model=None))
    keys = {answer.participant: answer.payload for answer in advertised.answers if answer.payload is not None}
    request, refused = noise_request(
        run.project, run.run, session, keys, await run.enrolled(f"{session}-noise-roster"), work=work_of(run, ask)
    )  # fmt: skip
    _note_refused(run, ask, session, refused, "its key is not signed with its enrolled key")
    if request is None or len(request.members) < ask.needed:
        left = 0 if request is None else len(request.members)
        raise too_few(f"session {session}", left, len(ask.to), "can exchange noise", ask.needed)
    data = request.encode()

    async def to_all(_: str) -> bytes:
        return data

    names = tuple(member.participant for member in request.members)
    step = share_step(session)
    shared = await gather(run, step, replace(own, kind=TaskKind.SHARE, to=names, payload=to_all, keep=True))
    relayed = _Relayed(run, request, step, shared)
    members = await relayed.members()
    _note_refused(
        run, ask, session, [name for name in names if name not in members], "it has not sent noise for every other site"
    )
    return replace(ask, to=members, payload=relayed.payload)


class _Relayed:
    """What each site is to be given of the others' noise.

    Who is given something is recorded. The noise itself is read when it is sent, which a replayed step never is: it
    leaves the bus when the masked step is over.
    """

    def __init__(self, run: Verbs, request: NoiseRequest, step: str, shared: Gathered) -> None:
        self._run, self._request, self._step, self._shared = run, request, step, shared
        self._given: dict[str, bytes] | None = None
        self._reading = asyncio.Lock()

    async def members(self) -> tuple[str, ...]:
        """Those who have sent noise for every other site, sorted."""

        async def decide() -> Body:
            try:
                return {"members": sorted(await self._read())}
            except RunFailure as failure:
                if failure.code is not ErrorCode.NOT_FOUND:
                    raise
            # Release 0.1.0 has not recorded this. Where the noise is gone, the masked step is over: whoever has sent
            # noise was asked in it, and its record says who has answered.
            return {"members": sorted(answer.participant for answer in self._shared.answers)}

        asked = {"request": self._request, "shared": self._shared.digested()}
        return tuple((await self._run.once(f"{self._step}-members", asked, decide))["members"])

    async def payload(self, name: str) -> bytes:
        """What a member is given."""
        return (await self._read())[name]

    async def _read(self) -> dict[str, bytes]:
        async with self._reading:
            if self._given is None:
                self._given, _ = relay(self._request, await self._run.payloads(self._step, self._shared))
            return self._given


def _note_refused(run: Verbs, ask: Ask, session: str, refused: Iterable[str], reason: str) -> None:
    for name in refused:
        run.note(
            "refused", f"{session}/noise/{name}", round=ask.round, step=session, participant=name, code="tampered",
            reason=reason,
        )  # fmt: skip
