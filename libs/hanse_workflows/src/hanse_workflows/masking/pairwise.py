"""Masks that cancel each other (`hanse_privacy.pairwise`): no third party, but more to say among the sites.

ADVERTISE (once a run, and again by whoever is new) -> SHARE -> the masked step itself -> UNMASK. Who is asked in the
step that comes next shares secrets for it beside the masked answer, so that nobody waits for SHARE: a round trip less a
step. Where not all of them did, SHARE is asked as ever. The coordinator relays
what is sealed and signed; at the end it holds what unmasks this one sum, and hands it to the aggregator. Who drops out
at any step is survived as long as the threshold remains; a sum that cannot be unmasked is made again, in a new session.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Awaitable, Callable, Mapping

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Bound, Masking, MaskingMode, Ring, RingPlan, RingSum, TaskKind
from hanse_privacy.pairwise.coordination import ask_unmask, read_adverts, share_request
from hanse_privacy.pairwise.messages import AdvertRequest, Member, ShareRequest
from hanse_privacy.pairwise.recovering import recover
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import gather
from hanse_workflows.masking.pairwise_session import PairwiseSession
from hanse_workflows.masking.protocols import MaskedSession, MaskingProtocol, plan_of_run, work_of
from hanse_workflows.next_model import SumUnmasking
from hanse_workflows.outcomes import Answer, Gathered
from hanse_workflows.quorum import Quorum, most_within, threshold_wanted, too_few
from hanse_workflows.verbs import Verbs

_PROTOCOL_S = 60.0
"""How long the protocol's own steps are open at most: they take a site milliseconds, once it is there."""

_UNMASK_GRACE_S = 2.0


class Pairwise(MaskingProtocol):
    """The sites' masks cancel each other. One session of a run is open at a time, or after `meet` many at once. What is
    held here follows from what is journalled."""

    mode = MaskingMode.PAIRWISE

    def __init__(self, run: Verbs, settings: SecureAggregation) -> None:
        super().__init__(run, settings)
        self._adverts: dict[str, bytes] = {}
        self._verified: dict[tuple[bytes, bytes], Member] = {}
        self._open: dict[str, PairwiseSession] = {}
        self._roster: dict[str, bytes] | None = None
        self._able: set[str] = set()
        self._ahead: tuple[PairwiseSession, Gathered] | None = None
        self._named: set[str] = set()

    async def meet(self, chosen: tuple[str, ...]) -> None:
        """Have `chosen` advertise their keys, once for all sessions: these may then be open at the same time, and come
        in any order at a replay, because none records what another has found.

        Raises:
            RunFailure: QUORUM when somebody does not.
        """
        self._roster = await self._run.enrolled("roster")
        ring = Ring(bits=64, fraction=0, bound=1)
        masking = Masking(
            mode=MaskingMode.PAIRWISE, session="all", minimum=self._settings.minimum,
            ring=RingPlan(participants=len(chosen), default=ring),
        )  # fmt: skip
        await self._advertise(masking, 0, chosen, len(chosen))

    def release(self, session: MaskedSession) -> None:
        """What was shared is removed from the bus."""
        opened = self._open.pop(session.masking.session, None)
        if opened is not None:
            self._release(opened)

    async def prepare(
        self,
        session: str,
        ask: Ask,
        chosen: tuple[str, ...],
        *,
        least: Callable[[int], int],
        plan: RingPlan | None = None,
        above: int = 0,
    ) -> MaskedSession:
        """Have `chosen` share secrets; where fewer do than the threshold, those who did, among each other. Who does
        not is not asked for an answer.

        Raises:
            RunFailure: QUORUM when too few are there for it.
        """
        if self._roster is None:
            for former in tuple(self._open):
                self._release(self._open.pop(former))
        plan = plan or plan_of_run(self._run, self._settings, len(chosen), ask)
        needed = Quorum(len(chosen), self._run.job.participants.needed(len(chosen)), self._settings.minimum).least
        for attempt in itertools.count(1):
            name = session if attempt == 1 else f"{session}-m{attempt}"
            masking = Masking(mode=MaskingMode.PAIRWISE, session=name, minimum=self._settings.minimum, ring=plan)
            if (opened := await self._share(masking, ask, chosen, needed, least, above)) is None:
                continue
            # Whoever could not share may have lost its key: it advertises anew before the next session.
            for absent in set(chosen) - set(opened.members):
                self._adverts.pop(absent, None)
            if len(opened.members) >= opened.request.threshold:
                self._open[name] = opened
                keep = opened.then is not None
                return MaskedSession(opened.masking, opened.members, opened.order, opened.request.threshold, keep)
            self._release(opened)
            if len(opened.members) < needed:
                raise _too_few(name, opened.members, chosen, needed)
            chosen = opened.members
        raise AssertionError("an endless count has ended")

    def heard(self, session: MaskedSession, gathered: Gathered) -> None:
        """What came beside the answers is there for the session after this one."""
        opened = self._open[session.masking.session]
        if opened.then is not None:
            self._ahead = opened, gathered

    def most_within(self, session: MaskedSession, given: int, gap: int) -> int:  # noqa: ARG002
        return most_within(self._settings, len(session.to), session.needed, gap)

    async def _share(
        self, masking: Masking, asked: Ask, chosen: tuple[str, ...], needed: int, least: Callable[[int], int],
        above: int,
    ) -> PairwiseSession | None:  # fmt: skip
        """The session, of those whose shares there are; None where it was named ahead and is not to be: it takes
        another name."""
        session, round_number = masking.session, asked.round
        await self._advertise(masking, round_number, chosen, needed)
        identities = await self._run.enrolled(f"{session}-roster") if self._roster is None else self._roster
        members = self._members(session, round_number, chosen, identities)
        if len(members) < needed:
            raise _too_few(session, tuple(member.participant for member in members), chosen, needed)
        minimum = max(self._settings.minimum, least(len(members)))
        try:
            threshold = threshold_wanted(self._settings, len(members), minimum, above)
            request = share_request(
                self._run.project, self._run.run, session, members, threshold=threshold,
                minimum=minimum, colluding=self._settings.colluding or 0, roster=identities.values(),
                work=work_of(self._run, asked),
            )  # fmt: skip
        except HanseError as error:
            raise RunFailure(error.code, f"session {session}: {error.message}", hint=error.hint) from None
        then = self._then(asked, request)
        if session in self._named:
            return await self._shared_ahead(request, masking, then)
        self._drop_ahead()  # whoever shares for another session ends it
        step = f"{session}-share"
        gathered = await gather(
            self._run, step,
            self._ask(
                TaskKind.SHARE, round_number, request.names, needed=needed, masking=masking,
                payload=_once(request.encode), bound=asked.bound,
            ),
        )  # fmt: skip
        opened = await PairwiseSession(self._run, request, masking, gathered, shared=step, then=then).open()
        self._note_refused(session, round_number, opened.refused)
        return self._naming(opened)

    def _then(self, asked: Ask, request: ShareRequest) -> str | None:
        """The session after this one, if its secrets can be shared beside the answers; None: not."""
        free = asked.then and asked.then not in self._named and self._roster is None
        able = request.work is not None and request.names == asked.to and self._able.issuperset(request.names)
        return asked.then if free and able else None

    async def _shared_ahead(
        self, request: ShareRequest, masking: Masking, then: str | None
    ) -> PairwiseSession | None:  # fmt: skip
        """The session of what its members shared beside their answers before; None where others are asked now, or not
        all have shared."""
        if self._ahead is None:
            return None
        (before, gathered), self._ahead = self._ahead, None
        step, known = before.masking.session, before.request.next(request.session)
        if before.then == request.session and known == request.next(request.session):
            opened = PairwiseSession(self._run, known, masking, gathered, shared=step, ahead=True, then=then)
            if (await opened.open()).whole:
                return self._naming(opened)
        self._run.release(step)
        return None

    def _naming(self, opened: PairwiseSession) -> PairwiseSession:
        if opened.then is not None:
            self._named.add(opened.then)
        return opened

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self._run.release(self._ahead[0].masking.session)
            self._ahead = None

    async def unmask(self, session: MaskedSession, round_number: int, answers: tuple[Answer, ...]) -> SumUnmasking:
        """Have the survivors recover what is left in the sum of these answers."""
        name = session.masking.session
        opened = self._open.get(name)
        if opened is None:
            raise RunFailure(ErrorCode.INTERNAL, f"session {name}: it is not the one that is open")
        request = opened.request
        signed = await self._run.payloads(name, Gathered(asked=opened.members, answers=answers))
        asked = await asyncio.to_thread(ask_unmask, request, opened.members, signed)
        if asked.refused:
            self._note_refused(name, round_number, asked.refused)
            return SumUnmasking(None, tuple(asked.refused))
        step = opened.steps[1]
        try:
            gathered = await gather(
                self._run, step,
                self._ask(
                    TaskKind.UNMASK, round_number, asked.survivors, needed=request.threshold, masking=opened.masking,
                    payload=_once(lambda: asked.payload), grace=_UNMASK_GRACE_S,
                ),
            )  # fmt: skip
        except RunFailure as failure:
            if failure.code is not ErrorCode.QUORUM:
                raise
            # The masks of this sum stay on for ever. The same members make another one.
            self._run.note("note", f"{name}/lost", round=round_number, step=name, reason=failure.message)
            return SumUnmasking(None, given=True)
        revealed, orders = await self._run.payloads(step, gathered), await opened.orders()
        recovered = await asyncio.to_thread(recover, request, orders.answers, asked.survivors, revealed, asked.asked)
        self._note_refused(name, round_number, recovered.refused)
        if recovered.recovery is None:
            return SumUnmasking(None, tuple(recovered.refused), given=True)
        return SumUnmasking(
            RingSum(
                mode=MaskingMode.PAIRWISE, session=name, plan=opened.masking.ring,
                recovery=base64.b64encode(recovered.recovery),
            )
        )  # fmt: skip

    async def _advertise(self, masking: Masking, round_number: int, chosen: tuple[str, ...], needed: int) -> None:
        """Ask those of `chosen` for a key whose key is not known yet."""
        missing = tuple(name for name in chosen if name not in self._adverts)
        if missing:
            left = max(0, needed - (len(chosen) - len(missing)))
            ask = self._ask(
                TaskKind.ADVERTISE, round_number, missing, needed=left, peers=len(chosen), masking=masking, keep=False,
                payload=_once(AdvertRequest(ahead=True).encode) if self._run.binds else None,
            )  # fmt: skip
            gathered = await gather(self._run, f"{masking.session}-advertise", ask)
            self._adverts |= _payloads(gathered.answers)

    def _members(
        self, session: str, round_number: int, chosen: tuple[str, ...], identities: Mapping[str, bytes]
    ) -> tuple[Member, ...]:
        """Those of `chosen` with a key that they signed, by their own keys as they are enrolled now."""
        known = {name: self._adverts[name] for name in chosen if name in self._adverts}
        unseen = {
            name: advert for name, advert in known.items() if (identities.get(name, b""), advert) not in self._verified
        }
        read = read_adverts(self._run.project, self._run.run, identities, unseen)
        self._able -= {name for name in unseen if name not in read.ahead}
        self._able |= read.ahead
        for member in read.members:
            self._verified[member.identity, known[member.participant]] = member
        for name in read.refused:
            del self._adverts[name]
        self._note_refused(session, round_number, read.refused)
        return tuple(self._verified[identities[name], known[name]] for name in known if name not in read.refused)

    def _ask(
        self, kind: TaskKind, round_number: int, to: tuple[str, ...], *, needed: int, masking: Masking, peers: int = 0,
        payload: Callable[[str], Awaitable[bytes]] | None = None, grace: float | None = None, keep: bool = True,
        bound: Bound | None = None,
    ) -> Ask:  # fmt: skip
        job = self._run.job
        deadline = min(job.participants.deadline, _PROTOCOL_S)
        if grace is None and job.participants.grace is not None:
            grace = min(job.participants.grace, deadline)
        return Ask(
            kind=kind, round=round_number, to=to, config={"model": job.model}, seed=lambda _: 0, model=None,
            needed=needed, grace=grace, deadline=deadline, retries=job.participants.retries, peers=peers,
            masking=masking, payload=payload, keep=keep, bound=bound,
        )  # fmt: skip

    def _release(self, opened: PairwiseSession) -> None:
        for step in opened.steps:
            self._run.release(step)

    def _note_refused(self, session: str, round_number: int, refused: Mapping[str, str]) -> None:
        for name, reason in refused.items():
            self._run.note(
                "refused", f"{session}/{name}", round=round_number, step=session, participant=name, code="tampered",
                reason=reason,
            )  # fmt: skip


def _too_few(session: str, there: tuple[str, ...], chosen: tuple[str, ...], needed: int) -> RunFailure:
    return too_few(
        f"session {session}", len(there), len(chosen), "share secrets", needed, why=", ".join(there) or "none",
        hint="see the other sites' logs, or change participants.quorum or secure_aggregation.minimum",
    )  # fmt: skip


def _payloads(answers: tuple[Answer, ...]) -> dict[str, bytes]:
    return {answer.participant: answer.payload for answer in answers if answer.payload is not None}


def _once(make: Callable[[], bytes]) -> Callable[[str], Awaitable[bytes]]:
    """The same payload for everybody, made when the first is sent."""
    made: list[bytes] = []

    async def payload(_: str) -> bytes:
        if not made:
            made.append(make())
        return made[0]

    return payload
