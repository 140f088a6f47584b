"""A site's part of pairwise aggregation: one method for each task, payload in, payload out.

The hub is not trusted: it relays keys that others signed, and every set that it names is checked before anything is
revealed. Methods block (disk, arithmetic): call them in a thread, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_privacy.masks.bound import Asked, bound_seed
from hanse_privacy.masks.seal import roster_digest
from hanse_privacy.pairwise import shamir
from hanse_privacy.pairwise.keys import RunKey, advert_statement, exchange_key, mask_key
from hanse_privacy.pairwise.messages import (
    SIGNATURE_BYTES,
    Advert,
    AdvertRequest,
    Agreement,
    MaskOrder,
    ShareAnswer,
    ShareRequest,
    UnmaskAnswer,
    UnmaskRequest,
    records,
)
from hanse_privacy.pairwise.session import RunFolder, SessionState, conflict
from hanse_privacy.pairwise.shares import (
    CHECK_BYTES,
    SEALED_BYTES,
    SharePair,
    agreement_statement,
    make_shares,
    open_share,
)
from hanse_privacy.pairwise.streams import Masks
from hanse_privacy.pairwise.sums import SumMasks
from hanse_privacy.pairwise.thresholds import check_threshold
from hanse_privacy.works.chain import Members, keys_of
from hanse_privacy.works.pairwise import UnmaskingSession


@dataclass(frozen=True, slots=True)
class MaskingNote:
    """What TRAIN and EVALUATE need: the masks to add to the answer, the payload that goes with it, and among whom these
    masks cancel."""

    masks: Masks
    payload: bytes
    among: UnmaskingSession


class SiteMemory(Protocol):
    """What a site remembers of works, asked before something leaves that cannot be taken back. Each method refuses with
    CONFLICT or GONE, or remembers (`works.pairwise.Past`)."""

    def sharing(self, work: bytes, among: UnmaskingSession) -> None:
        """Secrets are to be shared for a sum of a work."""

    def unmasking(self, run: str, session: str, among: UnmaskingSession, survivors: Members) -> None:
        """A sum of these is to be unmasked."""


class PairwiseSite:
    """One participant of one project.

    Args:
        folder: where its state lives, by run.
        signing: its enrolled key.
        minimum: its policy's: it takes part in no session from which a sum of fewer could come.
        colluding: how many sites may collude with the hub, as its policy says.
        roster: SHA-256 over the enrolled keys (`masks.seal.roster_digest`) that its policy pins; None: not pinned.
        memory: what the site remembers of works; None: nothing.
        beside: 0: a session ends those before it, because the difference of two sums of one thing over different sites
            is somebody's. Else so many may be under way at once, all of the same members, and each sum is of all of
            them.
    """

    def __init__(
        self, folder: Path, signing: SigningKey, *, project: str, participant: str, minimum: int,
        colluding: int = 0, roster: bytes | None = None, memory: SiteMemory | None = None, beside: int = 0,
    ) -> None:  # fmt: skip
        self._folder, self._signing = folder, signing
        self._project, self._own = project, participant
        self._minimum, self._colluding, self._roster, self._beside = minimum, colluding, roster, beside
        self._memory = memory
        self._pairs: dict[tuple[str, str, bytes], bytes] = {}

    def advertise(self, run: str, payload: bytes | None = None) -> bytes:
        """ADVERTISE: this site's key of the run, signed. The same every time.

        Args:
            payload: what the hub can do; None: a hub of release 0.1.0 does not say.

        Raises:
            HanseError: INVALID_INPUT for another payload.
        """
        ahead = None if payload is None else AdvertRequest.decode(payload).ahead or None
        key = self._run(run).key().public_bytes
        signature = self._signing.sign(advert_statement(self._project, run, self._own, key))
        return Advert(key=key, signature=signature, ahead=ahead and not self._beside).encode()

    def share(self, run: str, payload: bytes, *, session: str) -> bytes:
        """SHARE: fresh secrets of a session, shared among its members.

        Args:
            session: that the task names.

        Raises:
            HanseError: TAMPERED for a key that its owner did not sign, or a roster that is not the pinned one;
                INVALID_INPUT for members or a threshold that nobody should take part with; CONFLICT for another
                request of a session that was answered; GONE when it is over.
        """
        request = ShareRequest.decode(payload)
        self._same("session", request.session, session)
        folder = self._run(run)
        state = folder.find(session)
        if state is not None:
            if state.request != request:
                raise conflict(session, "other members or keys")
            return state.answer.encode()
        own_key = folder.key()
        self._check(request, run, own_key)
        self._check_beside(request, folder)
        if self._memory is not None and request.work is not None:
            self._memory.sharing(request.work, self._among(request, request.names))
        state = self._shared(request, run, own_key)
        folder.store(state)
        if self._beside:
            folder.end_old(self._beside)
        else:
            folder.end_others(session)
        return state.answer.encode()

    def _shared(self, request: ShareRequest, run: str, own_key: RunKey, *, ahead: bool = False) -> SessionState:
        """Fresh secrets of a session, which are shared once this is written down."""
        others = [member for member in request.members if member.participant != self._own]
        pairs = {member.participant: self._pair(own_key, run, member.participant, member.key) for member in others}
        masks = {name: mask_key(pair, request.session) for name, pair in pairs.items()}
        shared = make_shares(request, self._own, pairs, masks)
        kept = shared.kept.own + shared.kept.wrap
        return SessionState(request=request, answer=shared.answer, own=shared.own, kept=kept, ahead=ahead or None)

    def _share_ahead(self, session: str, before: ShareRequest, run: str) -> ShareAnswer | None:
        """Secrets of the session after this one, of the same members, for a work that is not known yet: it is held
        against the site's memory when it is answered. None where the session is over, as are all that were opened
        otherwise: masks end these first."""
        folder, request = self._run(run), before.next(session)
        if folder.ended(session) is not None:
            return None
        state = folder.find(session)
        if state is not None:
            if state.request != request:
                raise conflict(session, "other members or keys")
            return state.answer
        own_key = folder.key()
        self._check(request, run, own_key)
        state = self._shared(request, run, own_key, ahead=True)
        folder.end_waiting(session)
        folder.store(state)
        return state.answer

    def masks(
        self, run: str, payload: bytes, *, session: str, task: str, asked: Asked | None = None
    ) -> MaskingNote:  # fmt: skip
        """TRAIN, EVALUATE: the masks of this task's answer. They are for one answer: the task's id binds them, and what
        it asks. Beside it go secrets of the session that comes next, where the hub names one.

        Args:
            asked: None: by a hub of release 0.1.0, which binds nothing.

        Raises:
            HanseError: GONE without the session's secrets; CONFLICT for another set, task or request than before, or
                another work than the session was opened for; TAMPERED for a share that is not what its sender made;
                INVALID_INPUT for members that cannot be.
        """
        state, order, pairs = self._bind(run, payload, session, task, asked)
        request, own = state.request, state.own
        bound = None if asked is None else asked.request
        keys = {name: bound_seed(mask_key(pair, session), bound) for name, pair in pairs.items()}
        masks = Masks(
            add=[bound_seed(own, bound), *(key for name, key in keys.items() if self._own < name)],
            subtract=[key for name, key in keys.items() if name < self._own],
        )
        signature = self._signing.sign(agreement_statement(request, order.members, bound))
        ahead = None
        if order.ahead is not None and bound is not None and not self._beside:
            ahead = self._share_ahead(order.ahead, request, run)
        payload = Agreement(signature=signature, request=bound, ahead=ahead).encode()
        return MaskingNote(masks, payload, self._among(request, order.members))

    def sums(
        self, run: str, payload: bytes, *, session: str, task: str, begin: Callable[[UnmaskingSession], None],
        asked: Asked | None = None,
    ) -> SumMasks:  # fmt: skip
        """TRAIN, before the work: the masks of its sums with all who mask this task's answer.

        Args:
            begin: remembers among whom they are begun, or refuses: nothing is needed to unmask them.

        Raises:
            HanseError: as `masks`; what `begin` refuses.
        """
        state, order, pairs = self._bind(run, payload, session, task, asked)
        request = state.request
        if state.ahead:
            raise HanseError(
                ErrorCode.CONFLICT, f"session {session}: it was shared ahead, which sums within a work are not",
                hint="the hub opens a session of its own for them",
            )  # fmt: skip
        begin(self._among(request, order.members))
        folder = self._run(run)
        keys = {name: exchange_key(pair, session, self._own, name) for name, pair in pairs.items()}
        return SumMasks(folder, session, self._own, keys, None if asked is None else asked.request)

    def _bind(
        self, run: str, payload: bytes, session: str, task: str, asked: Asked | None
    ) -> tuple[SessionState, MaskOrder, dict[str, bytes]]:
        """Check whom a task masks with, and that it is the session's: (the session, order, keys of pairs)."""
        order = MaskOrder.decode(payload)
        self._same("session", order.session, session)
        folder = self._run(run)
        state = folder.require(session)
        bound = None if asked is None else asked.request
        if state.order is not None and (state.order, state.task, state.asked) != (order, task, bound):
            raise conflict(session, "masks for another set, task or request")
        request, own_key = state.request, folder.key()
        other = asked is None if state.ahead else request.work != (None if asked is None else asked.work)
        if other:
            raise HanseError(ErrorCode.CONFLICT, f"session {session}: it was opened for another work than is asked")
        self._check_threshold(request)
        _check_members(order.members, request.names, self._own, request.threshold, "members")
        self._check_whole(order.members, request, "members")
        self._open_all(state, order, own_key, run)
        if not self._beside:
            folder.end_answered(session)
        if state.order is None:
            folder.store(state.model_copy(update={"order": order, "task": task, "asked": bound}))
        return state, order, self._pairs_of(order, request, own_key, run)

    def unmask(self, run: str, payload: bytes, *, session: str) -> bytes:
        """UNMASK: this site's share of the own seed of each survivor, and of the wrapping secret of each other member;
        never both of one, and once.

        Raises:
            HanseError: CONFLICT for another set than before, or before the masks were made; TAMPERED when a survivor
                did not sign that it masked with the same members and answered the same request; QUORUM below the
                threshold; GONE, INVALID_INPUT.
        """
        asked = UnmaskRequest.decode(payload)
        self._same("session", asked.session, session)
        folder = self._run(run)
        ended = folder.ended(session)
        if ended is not None:
            return ended.again(asked)
        state = folder.require(session)
        if state.order is None:
            raise conflict(session, "shares before masks")
        self._check_survivors(state, state.order, asked)
        held = self._open_all(state, state.order, folder.key(), run)
        alive = frozenset(asked.survivors)
        if self._memory is not None:
            among = self._among(state.request, state.order.members)
            self._memory.unmasking(run, session, among, _keys(state.request, alive))
        revealed = UnmaskAnswer(
            shares=b"".join(
                held[name].own if name in alive else held[name].wrap for name in state.order.members
            )
        )  # fmt: skip
        folder.end(session, asked, revealed)
        return revealed.encode()

    def forget(self, run: str) -> None:
        """Erase the run's key: none of its masks can be made again."""
        self._run(run).remove()
        self._pairs = {pair: key for pair, key in self._pairs.items() if pair[0] != run}

    def _check(self, request: ShareRequest, run: str, own_key: RunKey) -> None:
        self._same("project", request.project, self._project)
        self._same("run", request.run, run)
        own = next((member for member in request.members if member.participant == self._own), None)
        if own is None or own.key != own_key.public_bytes or own.identity != self._signing.public_bytes:
            raise HanseError(ErrorCode.TAMPERED, f"members: {self._own} is not there with its own keys")
        self._check_threshold(request)
        enrolled = None
        if self._roster is not None:
            keys = [request.roster[at : at + 32] for at in range(0, len(request.roster), 32)]
            if roster_digest(keys) != self._roster:
                raise HanseError(
                    ErrorCode.TAMPERED,
                    "roster: the enrolled keys are not those that this site's policy pins",
                    hint="the site's administrator checks who joined or left, and pins the new roster",
                )
            enrolled = frozenset(keys)
        for member in request.members:
            if enrolled is not None and member.identity not in enrolled:
                raise HanseError(ErrorCode.TAMPERED, f"key of {member.participant}: it is not on the pinned roster")
            statement = advert_statement(self._project, run, member.participant, member.key)
            VerifyKey(member.identity).verify(member.signature, statement, what=f"key of {member.participant}")

    def _among(self, request: ShareRequest, members: Collection[str]) -> UnmaskingSession:
        gap = self._minimum + self._colluding
        return UnmaskingSession(_keys(request, members), request.threshold, gap, self._colluding)

    def _check_threshold(self, request: ShareRequest) -> None:
        check_threshold(
            request.threshold, members=len(request.members), minimum=self._minimum, colluding=self._colluding
        )

    def _check_beside(self, request: ShareRequest, folder: RunFolder) -> None:
        if not self._beside:
            return
        for session in folder.live()[:1]:
            if folder.require(session).request.names != request.names:
                raise HanseError(
                    ErrorCode.CONFLICT,
                    f"members: {', '.join(request.names)[:200]}, but session {session} is under way with others",
                    hint="all sums of a study are of the same cohorts",
                )

    def _check_whole(self, named: Sequence[str], request: ShareRequest, what: str) -> None:
        if self._beside and list(named) != list(request.names):
            raise HanseError(
                ErrorCode.CONFLICT, f"{what}: {len(named)} of the session's {len(request.names)}, expected all of them",
                hint="all sums of a study are of the same cohorts",
            )  # fmt: skip

    def _check_survivors(self, state: SessionState, order: MaskOrder, asked: UnmaskRequest) -> None:
        request = state.request
        _check_members(asked.survivors, order.members, None, request.threshold, "survivors")
        self._check_whole(asked.survivors, request, "survivors")
        identities = {member.participant: member.identity for member in request.members}
        # In the terms of what this site was asked itself: nothing is revealed of answers to anything else.
        statement = agreement_statement(request, order.members, state.asked)
        signed = records(asked.agreements, SIGNATURE_BYTES, asked.survivors, what="agreements")
        for name, signature in signed.items():
            VerifyKey(identities[name]).verify(signature, statement, what=f"members and request of {name}")

    def _open_all(self, state: SessionState, order: MaskOrder, own_key: RunKey, run: str) -> dict[str, SharePair]:
        others = [name for name in order.members if name != self._own]
        sealed = records(order.sealed, SEALED_BYTES, others, what="sealed shares")
        checks = records(order.checks, 2 * CHECK_BYTES, others, what="checks of shares")
        pairs = self._pairs_of(order, state.request, own_key, run)
        held = {
            name: open_share(
                state.request, sender=name, receiver=self._own, pair=pairs[name], sealed=sealed[name],
                checks=checks[name],
            )
            for name in others
        }  # fmt: skip
        held[self._own] = SharePair(state.kept[: shamir.SHARE_BYTES], state.kept[shamir.SHARE_BYTES :])
        return held

    def _pairs_of(self, order: MaskOrder, request: ShareRequest, own_key: RunKey, run: str) -> dict[str, bytes]:
        keys = {member.participant: member.key for member in request.members}
        return {name: self._pair(own_key, run, name, keys[name]) for name in order.members if name != self._own}

    def _pair(self, own_key: RunKey, run: str, peer: str, peer_key: bytes) -> bytes:
        at = run, peer, own_key.public_bytes + peer_key
        if at not in self._pairs:
            self._pairs[at] = own_key.agree(peer_key, project=self._project, run=run, own=self._own, peer=peer)
        return self._pairs[at]

    def _run(self, run: str) -> RunFolder:
        return RunFolder(self._folder / run)

    def _same(self, field: str, value: str, expected: str) -> None:
        if value != expected:
            raise invalid(field, value, f"that of the task, {expected}")


def _keys(request: ShareRequest, members: Collection[str]) -> Members:
    return keys_of(member.identity for member in request.members if member.participant in members)


def _check_members(
    named: Sequence[str], among: Sequence[str], own: str | None, threshold: int, what: str
) -> None:  # fmt: skip
    if list(named) != sorted(set(named)) or not set(named) <= set(among):
        raise invalid(what, list(named)[:8], "a sorted part of the session's members")
    if own is not None and own not in named:
        raise invalid(what, list(named)[:8], f"a set with {own} in it")
    if len(named) < threshold:
        raise HanseError(ErrorCode.QUORUM, f"{what}: {len(named)}, at least the threshold of {threshold} is needed")
