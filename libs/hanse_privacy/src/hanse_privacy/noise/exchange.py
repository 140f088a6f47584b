"""Mode `oblivious`: sites draw noise for each other, and each tosses coins for which of it to add.

As with the shuffler (`hanse_privacy.noise.parts`), what cancels is left out. Of each pair (d0, d1) the sender adds d0
to its own update; the receiver gets D = d1 - d0, sealed, and adds D or nothing. Mugunthan (2022, Protocol 1) sends both
parts under a uniform s. That is not needed here, because updates are masked, and a receiver learns the same: D. When a
receiver drops out, d0 stays in the sum: the noise is whole, only less oblivious.

State is in memory alone. A site that is started again between the steps has lost its noise and takes no part.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_privacy.masks.seal import roster_digest
from hanse_privacy.noise.exact import Integers
from hanse_privacy.noise.exchange_messages import NoiseKey, NoiseMember, NoiseRequest, NoiseShares, key_statement
from hanse_privacy.noise.parts import Parts, width_for
from hanse_privacy.noise.shuffled import PairedNoise, choose, pack
from hanse_privacy.noise.source import NoiseSource

MOST_BYTES = 180 << 10
"""Of one site's noise for all others, which travels in one message."""

_NONCE = bytes(12)  # every key is used once


@dataclass(slots=True)
class _Session:
    key: X25519PrivateKey
    request: NoiseRequest | None = None
    answer: bytes = b""
    steps: int = 0
    added: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    width: int = 8
    drawn: bool = False


class NoiseSite:
    """One participant's part: a method for each step, payload in, payload out. One session of a run at a time.

    Args:
        signing: its enrolled key.
        roster: SHA-256 over the enrolled keys that its policy pins; None: not pinned.
    """

    _SESSIONS: ClassVar[int] = 4

    def __init__(self, signing: SigningKey, *, project: str, participant: str, roster: bytes | None = None) -> None:
        self._signing, self._project, self._own, self._roster = signing, project, participant, roster
        self._sessions: dict[tuple[str, str], _Session] = {}

    def advertise(self, run: str, session: str) -> bytes:
        """ADVERTISE: a fresh key for this session, signed. The same when it is asked again."""
        kept = self._sessions.get((run, session))
        if kept is None:
            while len(self._sessions) >= self._SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            kept = self._sessions[run, session] = _Session(X25519PrivateKey.generate())
        key = kept.key.public_key().public_bytes_raw()
        signature = self._signing.sign(key_statement(self._project, run, session, self._own, key))
        return NoiseKey(key=key, signature=signature).encode()

    def share(self, run: str, payload: bytes, *, session: str, steps: int, count: int) -> bytes:
        """SHARE: noise for every other member, sealed.

        Args:
            steps: the scale of this site's whole noise, in steps of the ring's grid.
            count: parameters of the model.

        Raises:
            HanseError: TAMPERED for a key that its owner did not sign, or another roster than the pinned one; CONFLICT
                for another request than before; GONE without the session's key; TOO_LARGE for a model too large.
        """
        request, kept = NoiseRequest.decode(payload), self._kept(run, session)
        if kept.request is not None:
            if kept.request != request:
                raise HanseError(ErrorCode.CONFLICT, f"session {session}: noise was drawn for other members already")
            return kept.answer
        self._check(request, run, session, kept)
        others = [member for member in request.members if member.participant != self._own]
        kept.width = width_for(steps)
        if len(others) * count * kept.width > MOST_BYTES:
            raise HanseError(
                ErrorCode.TOO_LARGE,
                f"privacy.noise: oblivious for {count} parameters and {len(others)} other sites, at most "
                f"{MOST_BYTES // (len(others) * kept.width)} parameters can be sent",
                hint="use noise: oblivious-shuffled or distributed-gamma, a smaller model, or fewer sites in a round",
            )
        noise = PairedNoise(steps, len(others), NoiseSource())
        kept.request, kept.steps, kept.added = request, steps, noise.draw(count)
        sealed = [
            self._seal(kept, run, session, member, pack(difference[None], kept.width))
            for member, difference in zip(others, noise.differences, strict=True)
        ]
        kept.answer = NoiseShares(sealed=tuple(sealed)).encode()
        return kept.answer

    def draw(self, run: str, payload: bytes, *, session: str, steps: int) -> Integers:
        """TRAIN: this site's noise, with what it chose of the others': (count,). Once.

        Args:
            payload: `NoiseShares`: for each other member, in order, what it sealed for this site, or nothing.
            steps: the scale that the answer was charged for.

        Raises:
            HanseError: GONE without the session's noise, or when it was drawn before; TAMPERED for noise that does not
                open; INVALID_INPUT for other members or parameters; CONFLICT for noise of another scale.
        """
        given, kept = NoiseShares.decode(payload), self._kept(run, session)
        if kept.request is None or kept.drawn:
            raise _gone(session)
        check_scale(session, kept.steps, steps)
        others = [member for member in kept.request.members if member.participant != self._own]
        if len(given.sealed) != len(others):
            raise invalid("noise", f"of {len(given.sealed)} sites", f"of {len(others)}, in the members' order")
        parts = [
            self._open(kept, run, session, member, sealed)
            for member, sealed in zip(others, given.sealed, strict=True)
            if sealed
        ]
        kept.drawn = True
        if not parts:
            return kept.added
        return kept.added + choose(parts, NoiseSource().words(4).tobytes())

    def agreed(self, run: str, session: str, work: bytes) -> bytes:
        """Digest of who draws noise for whom in a session, for the request that a site signs.

        Raises:
            HanseError: GONE without the session's noise; CONFLICT where it was drawn for another work.
        """
        kept = self._kept(run, session)
        if kept.request is None:
            raise _gone(session)
        if kept.request.work != work:
            raise HanseError(ErrorCode.CONFLICT, f"session {session}: noise was drawn for another work than is asked")
        return hashlib.sha256(kept.request.canonical()).digest()

    def _kept(self, run: str, session: str) -> _Session:
        kept = self._sessions.get((run, session))
        if kept is None:
            raise _gone(session)
        return kept

    def _check(self, request: NoiseRequest, run: str, session: str, kept: _Session) -> None:
        own = {member.participant: member for member in request.members}.get(self._own)
        if own is None or own.key != kept.key.public_key().public_bytes_raw():
            raise HanseError(ErrorCode.TAMPERED, f"members: {self._own} is not there with its own key")
        enrolled: frozenset[bytes] | None = None
        if self._roster is not None:
            enrolled = frozenset(request.roster)
            if roster_digest(enrolled) != self._roster:
                raise HanseError(ErrorCode.TAMPERED, "roster: the keys are not those that this site's policy pins")
        for member in request.members:
            if enrolled is not None and member.identity not in enrolled:
                raise HanseError(ErrorCode.TAMPERED, f"key of {member.participant}: it is not on the pinned roster")
            said = key_statement(self._project, run, session, member.participant, member.key)
            VerifyKey(member.identity).verify(member.signature, said, what=f"noise key of {member.participant}")

    def _seal(self, kept: _Session, run: str, session: str, member: NoiseMember, data: bytes) -> bytes:
        key = self._pair_key(kept, run, session, member, sender=self._own)
        return ChaCha20Poly1305(key).encrypt(_NONCE, data, None)

    def _open(self, kept: _Session, run: str, session: str, member: NoiseMember, sealed: bytes) -> Parts:
        key = self._pair_key(kept, run, session, member, sender=member.participant)
        try:
            return Parts(1, kept.added.size, kept.width, ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None))
        except InvalidTag:
            raise HanseError(
                ErrorCode.TAMPERED, f"noise of {member.participant} for {session}: it does not open"
            ) from None

    def _pair_key(self, kept: _Session, run: str, session: str, member: NoiseMember, *, sender: str) -> bytes:
        receiver = member.participant if sender == self._own else self._own
        try:
            shared = kept.key.exchange(X25519PublicKey.from_public_bytes(member.key))
        except ValueError:
            raise HanseError(ErrorCode.TAMPERED, f"noise key of {member.participant}: a point of low order") from None
        info = b"hanse noise exchange 1" + key_statement(self._project, run, session, f"{sender}\x1f{receiver}", b"")
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared)


def check_scale(session: str, drawn: int, charged: int) -> None:
    """Whether noise is of the scale that an answer was charged for, both in steps of its ring's grid.

    Raises:
        HanseError: CONFLICT.
    """
    if drawn != charged:
        raise HanseError(
            ErrorCode.CONFLICT,
            f"session {session}: noise of {drawn} steps was exchanged, and the answer is charged for {charged}",
            hint="a hub asks for the exchange and for the answer with the same privacy terms and ring",
        )


def _gone(session: str) -> HanseError:
    return HanseError(
        ErrorCode.GONE, f"session {session}: this site has no noise for it, or has used it",
        hint="noise is drawn once for one answer; the step is done again in a new session",
    )  # fmt: skip
