"""From revealed shares to the seeds that unmask one sum: the coordinator's last step. No numpy here.

Every revealed share is held against the hash that its sender announced at SHARE, so a false share is refused by name
and the others still suffice.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.pairwise import shamir
from hanse_privacy.pairwise.messages import ShareAnswer, ShareRequest, UnmaskAnswer, records
from hanse_privacy.pairwise.recovery import Recovery, encode_recovery
from hanse_privacy.pairwise.shares import CHECK_BYTES, own_check, share_check, unwrap_keys


@dataclass(frozen=True, slots=True)
class Recovered:
    """What UNMASK brought.

    Attributes:
        recovery: for `RingSum.recovery`; None when fewer than the threshold gave true shares, or a member's secrets
            are unusable: the step is redone without those who are refused.
        refused: whose shares or secrets were false, and why.
    """

    recovery: bytes | None
    refused: dict[str, str]
    shares: int
    """How many gave true shares."""


def recover(
    request: ShareRequest, answers: Mapping[str, ShareAnswer], survivors: Sequence[str], payloads: Mapping[str, bytes],
    asked: bytes | None = None,
) -> Recovered:  # fmt: skip
    """Combine the answers to UNMASK.

    Args:
        answers: to SHARE, of U1, sorted by participant.
        survivors: U2.
        payloads: `UnmaskAnswer` by participant.
        asked: digest of what the survivors answered, of which their masks are; None: of release 0.1.0.
    """
    alive = frozenset(survivors)
    refused: dict[str, str] = {}
    held: dict[int, dict[str, bytes]] = {}
    for holder, payload in sorted(payloads.items()):
        try:
            held[request.abscissa(holder)] = _true_shares(request, answers, alive, holder, payload)
        except HanseError as error:
            refused[holder] = str(error)
    if len(held) < request.threshold:
        return Recovered(None, refused, len(held))
    used = sorted(held)[: request.threshold]
    weights = shamir.coefficients(used)
    blamed: dict[str, str] = {}
    own: list[bytes] = []
    subtract: list[bytes] = []
    add: list[bytes] = []
    for name, answer in answers.items():
        shares = {x: held[x][name] for x in used}
        try:
            secret = shamir.combine(shares, threshold=request.threshold, weights=weights)
            if name in alive:
                if not hmac.compare_digest(own_check(request.session, name, secret), answer.own):
                    raise HanseError(ErrorCode.TAMPERED, f"shares of {name}: they give another secret than announced")
                own.append(bound_seed(secret, asked))
                continue
            for survivor, key in unwrap_keys(request, name, secret, answer.wrapped).items():
                # The survivor added this mask where its name is the lower one, and subtracted it otherwise.
                if survivor in alive:
                    (subtract if survivor < name else add).append(bound_seed(key, asked))
        except HanseError as error:
            blamed[name] = str(error)
    if blamed:
        return Recovered(None, refused | blamed, len(held))
    return Recovered(encode_recovery(Recovery((*own, *subtract), tuple(add))), refused, len(held))


def _true_shares(
    request: ShareRequest, answers: Mapping[str, ShareAnswer], alive: frozenset[str], holder: str, payload: bytes
) -> dict[str, bytes]:
    revealed = UnmaskAnswer.decode(payload)
    shares = records(revealed.shares, shamir.SHARE_BYTES, list(answers), what=f"revealed shares of {holder}")
    at = (request.abscissa(holder) - 1) * 2 * CHECK_BYTES
    for sender, share in shares.items():
        own = sender in alive
        start = at if own else at + CHECK_BYTES
        announced = answers[sender].checks[start : start + CHECK_BYTES]
        if not hmac.compare_digest(share_check(request.session, sender, holder, share, own=own), announced):
            raise HanseError(
                ErrorCode.TAMPERED, f"revealed shares of {holder}: the one of {sender} is not what {sender} made"
            )
    return shares
