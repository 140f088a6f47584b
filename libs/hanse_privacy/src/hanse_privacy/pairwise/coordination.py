"""The coordinator's part of pairwise aggregation: who is in which set, and what each is sent. No numpy here.

The coordinator sees sealed shares, hashes and signatures; what it recovers at the end is what the aggregator needs to
unmask one sum. All functions are pure: the same answers give the same payloads, after a restart too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hanse_fabric.errors import HanseError
from hanse_fabric.identity.keys import VerifyKey
from hanse_privacy.pairwise.keys import advert_statement
from hanse_privacy.pairwise.messages import (
    Advert,
    Agreement,
    MaskOrder,
    Member,
    ShareAnswer,
    ShareRequest,
    UnmaskRequest,
    records,
)
from hanse_privacy.pairwise.shares import CHECK_BYTES, SEALED_BYTES, agreement_statement
from hanse_privacy.pairwise.thresholds import threshold_of


@dataclass(frozen=True, slots=True)
class Adverts:
    """The signed keys of a run's participants; `refused` says why others' do not count, `ahead` who shares secrets
    beside its answers."""

    members: tuple[Member, ...]
    refused: dict[str, str]
    ahead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Orders:
    """After SHARE: U1, and each one's payload for TRAIN or EVALUATE.

    Attributes:
        answers: what the members shared, by participant (sorted): U1.
        payloads: `MaskOrder` by participant.
        refused: by participant, why its answer does not count.
    """

    answers: dict[str, ShareAnswer]
    payloads: dict[str, bytes]
    refused: dict[str, str]

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self.answers)


@dataclass(frozen=True, slots=True)
class Unmasking:
    """After TRAIN or EVALUATE: U2, and the payload for UNMASK, the same for all.

    Attributes:
        refused: whose answers may not be in the sum, and why.
        asked: digest of what the survivors have signed that they answered; None: of release 0.1.0.
    """

    survivors: tuple[str, ...]
    payload: bytes
    refused: dict[str, str]
    asked: bytes | None = None


def read_adverts(project: str, run: str, identities: Mapping[str, bytes], answers: Mapping[str, bytes]) -> Adverts:
    """Check the answers to ADVERTISE.

    Args:
        identities: enrolled raw Ed25519 keys by participant.
        answers: payloads by participant.
    """
    members, refused, ahead = [], {}, set()
    for name, payload in sorted(answers.items()):
        try:
            advert = Advert.decode(payload)
            identity = VerifyKey(identities[name])
            statement = advert_statement(project, run, name, advert.key)
            identity.verify(advert.signature, statement, what=f"key of {name}")
        except KeyError:
            refused[name] = f"{name} is not enrolled"
        except HanseError as error:
            refused[name] = str(error)
        else:
            members.append(
                Member(participant=name, identity=identity.raw, key=advert.key, signature=advert.signature)
            )  # fmt: skip
            if advert.ahead:
                ahead.add(name)
    return Adverts(tuple(members), refused, frozenset(ahead))


def share_request(
    project: str, run: str, session: str, members: Iterable[Member], *, threshold: int | None, minimum: int,
    colluding: int = 0, roster: Iterable[bytes] = (), work: bytes | None = None,
) -> ShareRequest:  # fmt: skip
    """Open a session. `encode` it for all its members.

    Args:
        threshold: the job's; None: the default.
        colluding: how many sites may collude with the hub.
        work: digest of what the sum will be of; None: requests are bound to nothing.
        roster: the enrolled keys of the whole project, for sites that pin them.

    Raises:
        HanseError: QUORUM for too few members; INVALID_INPUT for a threshold that is too small for them.
    """
    chosen = tuple(sorted(members, key=lambda member: member.participant))
    return ShareRequest(
        project=project, run=run, session=session, members=chosen, roster=b"".join(sorted(roster)),
        threshold=threshold_of(threshold, members=len(chosen), minimum=minimum, colluding=colluding), work=work,
    )  # fmt: skip


def shared_ahead(payloads: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the sites shared of the next session beside their masked answers, as if they had been asked to share."""
    shared = {}
    for name, payload in payloads.items():
        with suppress(HanseError):  # who signs nonsense is named when the sum is unmasked
            if (ahead := Agreement.decode(payload).ahead) is not None:
                shared[name] = ahead.encode()
    return shared


def order_masks(request: ShareRequest, payloads: Mapping[str, bytes], *, ahead: str | None = None) -> Orders:
    """From the answers to SHARE to what each member masks with. There should be `request.threshold` of them.

    Args:
        ahead: the session after this one, for which all members of the request share secrets beside their answers, if
            all of them have shared for this one; None: no session is shared ahead.
    """
    names = request.names
    answers: dict[str, ShareAnswer] = {}
    sealed: dict[str, dict[str, bytes]] = {}
    checks: dict[str, dict[str, bytes]] = {}
    refused = {}
    for name in names:
        if name not in payloads:
            continue
        others = [other for other in names if other != name]
        try:
            answer = ShareAnswer.decode(payloads[name])
            sealed[name] = records(answer.sealed, SEALED_BYTES, others, what=f"shares of {name}")
            checks[name] = records(answer.checks, 2 * CHECK_BYTES, names, what=f"checks of {name}")
            answers[name] = answer
        except HanseError as error:
            refused[name] = str(error)
    orders = {
        name: MaskOrder.model_construct(
            session=request.session,
            members=tuple(answers),
            sealed=b"".join(sealed[sender][name] for sender in answers if sender != name),
            checks=b"".join(checks[sender][name] for sender in answers if sender != name),
            ahead=ahead if len(answers) == len(names) else None,
        ).encode()
        for name in answers
    }
    return Orders(answers, orders, refused)


def ask_unmask(request: ShareRequest, members: Iterable[str], payloads: Mapping[str, bytes]) -> Unmasking:
    """From the payloads of the masked answers to UNMASK's.

    Args:
        members: U1.
        payloads: of those whose masked answers are to be summed.
    """
    masked_with = tuple(members)
    identities = {member.participant: member.identity for member in request.members}
    signed: dict[bytes | None, dict[str, bytes]] = {}
    refused = {}
    for name, payload in sorted(payloads.items()):
        try:
            said = Agreement.decode(payload)
            statement = agreement_statement(request, masked_with, said.request)
            VerifyKey(identities[name]).verify(said.signature, statement, what=f"members and request of {name}")
            signed.setdefault(said.request, {})[name] = said.signature
        except HanseError as error:
            refused[name] = str(error)
    asked = max(signed, key=lambda each: len(signed[each]), default=None)
    signatures = signed.pop(asked, {})
    for others in signed.values():
        refused |= dict.fromkeys(others, "it has answered another request than most others")
    question = UnmaskRequest.model_construct(
        session=request.session, survivors=tuple(signatures), agreements=b"".join(signatures.values())
    )
    return Unmasking(tuple(signatures), question.encode(), refused, asked)
