"""Who is in a set, and whether their masks may be summed: signatures, seals, shapes, minimums, pinned rosters.

All faults of single members are found before a set is refused, so that a step has to be repeated only once. Of what was
unsealed, messages hold the members' demands and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hanse_compensator.openers import Opener
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages.masking import MaskRequest, MaskShape, SealedSeed
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_privacy.masks.seal import SeedNote, roster_digest, statement
from hanse_privacy.noise.parts import Parts, open_parts

_NAMED = 5
"""Members whose faults a message tells; the rest are counted."""


class RefusedError(HanseError):
    """Why a set's masks are not summed.

    Attributes:
        participants: the members who are the reason: without them another set may be summed, in a new session.
    """

    def __init__(self, code: ErrorCode, message: str, *, hint: str = "", participants: Sequence[str] = ()) -> None:
        super().__init__(code, message, hint=hint)
        self.participants = tuple(sorted(participants))


@dataclass(frozen=True, slots=True)
class SetLimits:
    """What the compensator itself demands of a set.

    Attributes:
        minimum, members: fewest and most participants.
        nbytes: largest sum of masks.
    """

    minimum: int = 3
    members: int = 10_000
    nbytes: int = 16 << 30


@dataclass(frozen=True, slots=True)
class Opened:
    """A set whose masks may be summed. `repr` shows no seed.

    Attributes:
        seeds: 32 bytes each, of the members in the order of their names; several of each where masks are shared.
        update: shape of their masked updates; None where there are tallies alone.
        tally: 64-bit elements of their tallies.
        parts: noise of each, in the same order, of which the coins choose; none where the job wants none.
        coins: their key.
        work: digest of the work of all; None: of release 0.1.0, which binds nothing.
        tags: by which members say that their answers are near to earlier ones.
        gap: the largest minimum of the members, those who may collude included.
    """

    seeds: tuple[bytes, ...] = field(repr=False)
    update: MaskShape | None
    tally: int
    parts: tuple[Parts, ...] = ()
    coins: bytes = field(default=b"", repr=False)
    work: bytes | None = None
    tags: tuple[bytes, ...] = ()
    gap: int = 1


Fault = tuple[ErrorCode, str]


def open_members(
    request: MaskRequest, roster: Mapping[str, ParticipantRecord], opener: Opener, limits: SetLimits
) -> Opened:
    """Check a set, and open its seeds.

    Args:
        roster: the project's participants by name, the revoked ones, too.

    Raises:
        RefusedError: for good: QUORUM, TOO_LARGE or INVALID_INPUT for the whole set, or with the members at fault:
            FORBIDDEN, TAMPERED, INVALID_INPUT or POLICY.
    """
    _check_set(request, limits)
    faults: dict[str, Fault] = {}
    notes: dict[str, SeedNote] = {}
    noise: dict[str, Parts] = {}
    sum_of = {"project": request.project, "run": request.run, "session": request.session}
    for member in request.members:
        try:
            _check_signature(request, member, roster.get(member.participant))
            note = opener.open(member, sum_of)
            if member.parts is not None:
                noise[member.participant] = _open_noise(member, member.parts, note.seed, sum_of)
            notes[member.participant] = note
        except HanseError as error:
            faults[member.participant] = (error.code, error.message)
    sound = [member for member in request.members if member.participant not in faults]
    _refuse(faults | _shape_faults(sound) | _asked_faults(sound, notes) | _key_faults(sound, roster))
    _refuse(_unmet_demands(notes, roster))
    first = request.members[0]
    nbytes = 0 if first.update is None else first.update.nbytes
    if nbytes > limits.nbytes:
        raise RefusedError(
            ErrorCode.TOO_LARGE, f"update: masks of {nbytes} bytes, at most {limits.nbytes} are summed here",
            hint="raise HANSE_COMPENSATOR_MASK_MIB",
        )  # fmt: skip
    seeds = tuple(seed for name in sorted(notes) for seed in notes[name].seeds)
    remembered: dict[str, Any] = {
        "work": notes[first.participant].work,
        "tags": tuple(note.tag for note in notes.values() if note.tag is not None),
        "gap": max(note.minimum for note in notes.values()),
    }
    if not noise:
        return Opened(seeds, first.update, first.tally, **remembered)
    coins = opener.coins(seeds, sum_of)
    return Opened(
        seeds, first.update, first.tally, tuple(noise[name] for name in sorted(noise)), coins, **remembered
    )  # fmt: skip


def _open_noise(member: SealedSeed, sealed: bytes, seed: bytes, sum_of: Mapping[str, str]) -> Parts:
    parts = open_parts(sealed, seed, **sum_of, participant=member.participant)
    shape = member.update or MaskShape()
    if shape not in (MaskShape(u64=parts.count), MaskShape(u32=parts.count)):
        raise HanseError(ErrorCode.INVALID_INPUT, f"noise of {parts.count} coordinates, with {_shown(member)}")
    return parts


def _check_set(request: MaskRequest, limits: SetLimits) -> None:
    names = [member.participant for member in request.members]
    if names != sorted(set(names)):
        raise RefusedError(ErrorCode.INVALID_INPUT, "members: distinct participants sorted by name were expected")
    if len(names) < limits.minimum:
        raise RefusedError(
            ErrorCode.QUORUM, f"members: {len(names)}, the masks of fewer than {limits.minimum} are never summed",
            hint="wait for more participants",
        )  # fmt: skip
    if len(names) > limits.members:
        raise RefusedError(
            ErrorCode.TOO_LARGE, f"members: {len(names)}, at most {limits.members} are summed here",
            hint="raise HANSE_COMPENSATOR_MEMBERS",
        )  # fmt: skip


def _shape_faults(members: Sequence[SealedSeed]) -> dict[str, Fault]:
    """All shapes must be equal."""
    return {
        member.participant: (ErrorCode.INVALID_INPUT, f"{_shown(member)}, the others have another shape")
        for member in _others(members, _shape)
    }


def _asked_faults(members: Sequence[SealedSeed], notes: Mapping[str, SeedNote]) -> dict[str, Fault]:
    """All must have answered one request, and say that it is one work: of others' answers the sum would tell one."""

    def asked(member: SealedSeed) -> tuple[str | None, bytes | None]:
        return member.request, notes[member.participant].work

    fault = ErrorCode.CONFLICT, "has answered another request than most others, and is summed with nobody else"
    return {member.participant: fault for member in _others(members, asked)}


def _others(members: Sequence[SealedSeed], trait: Callable[[SealedSeed], Hashable]) -> list[SealedSeed]:
    """Those who differ in something from most, who are at fault; of two halves, from that of the first."""
    counts = Counter(trait(member) for member in members)
    common = max(counts, key=lambda each: counts[each], default=None)
    return [member for member in members if trait(member) != common]


def _shape(member: SealedSeed) -> tuple[MaskShape | None, int, bool]:
    return member.update, member.tally, member.parts is not None


def _shown(member: SealedSeed) -> str:
    update = member.update or MaskShape()
    noise = "" if member.parts is None else ", noise to choose of"
    return f"elements: {update.in_words}, {member.tally} in the tally{noise}"


def _check_signature(request: MaskRequest, member: SealedSeed, record: ParticipantRecord | None) -> None:
    if record is None or record.revoked:
        state = "revoked" if record else "not enrolled"
        raise HanseError(ErrorCode.FORBIDDEN, f"{state} in project {request.project}")
    signed = statement(request.project, request.run, request.session, member)
    VerifyKey(record.public_key).verify(member.signature, signed, what="sealed seed")


def _key_faults(members: Sequence[SealedSeed], roster: Mapping[str, ParticipantRecord]) -> dict[str, Fault]:
    """One key is one participant: a site under several names does not make a set larger."""
    first: dict[bytes, str] = {}
    faults: dict[str, Fault] = {}
    for member in members:
        name = member.participant
        holder = first.setdefault(roster[name].public_key, name)
        if holder != name:
            faults[name] = (ErrorCode.FORBIDDEN, f"has the same key as {holder}")
    return faults


def _unmet_demands(notes: Mapping[str, SeedNote], roster: Mapping[str, ParticipantRecord]) -> dict[str, Fault]:
    """What the members' own policies demand of a set that they are in."""
    digest = roster_digest([record.public_key for record in roster.values() if not record.revoked])
    faults: dict[str, Fault] = {}
    for name, note in notes.items():
        if note.minimum > len(notes):
            faults[name] = (ErrorCode.POLICY, f"takes part in sums of at least {note.minimum}, these are {len(notes)}")
        elif note.roster is not None and note.roster != digest:
            faults[name] = (
                ErrorCode.POLICY,
                f"pins another roster than the project's of digest {digest.hex()[:16]}...",
            )
    return faults


def _refuse(faults: Mapping[str, Fault]) -> None:
    if not faults:
        return
    names = sorted(faults)
    told = "; ".join(f"{name}: {faults[name][1]}" for name in names[:_NAMED])
    more = f"; and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    raise RefusedError(faults[names[0]][0], told + more, hint="do the step again without them", participants=names)
