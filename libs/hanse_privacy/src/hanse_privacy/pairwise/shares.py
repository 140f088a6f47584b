"""What a site makes at SHARE: two fresh secrets, shared among the members, and its mask keys locked with one of them.

The own seed hides the site's update even where all its pair masks are recovered; the wrapping secret opens its mask
keys *of this session*. A share is sealed to its receiver and bound to session, sender, receiver and the whole list of
members, so a share from elsewhere does not open. Its SHA-256 goes with it: a false one is seen, and whose it is.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.pairwise import shamir
from hanse_privacy.pairwise.keys import KEY_BYTES, label, share_key, wrapping_key
from hanse_privacy.pairwise.messages import ShareAnswer, ShareRequest, records

_NONCE_BYTES, _TAG_BYTES = 12, 16
SEALED_BYTES = _NONCE_BYTES + 2 * shamir.SHARE_BYTES + _TAG_BYTES
CHECK_BYTES = 32


@dataclass(frozen=True, slots=True)
class SharePair:
    """One holder's shares of one site's two secrets. At most one of them is ever revealed."""

    own: bytes
    wrap: bytes


@dataclass(frozen=True, slots=True)
class Shared:
    """What SHARE made: the answer to send, and what stays: the seed of the own mask, the shares that one keeps."""

    answer: ShareAnswer
    own: bytes
    kept: SharePair


def make_shares(
    request: ShareRequest, sender: str, pairs: Mapping[str, bytes], mask_keys: Mapping[str, bytes]
) -> Shared:
    """Draw the session's secrets and share them.

    Args:
        sender: this site.
        pairs: the pair keys with all other members.
        mask_keys: this session's mask keys with all other members.
    """
    names, digest = request.names, request.digest
    own, wrap = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)
    split = [shamir.split(secret, threshold=request.threshold, count=len(names)) for secret in (own, wrap)]
    shares = {name: SharePair(*both) for name, *both in zip(names, *split, strict=True)}
    others = [name for name in names if name != sender]
    sealed = [
        _seal(
            share_key(pairs[name], request.session, sender, name),
            shares[name].own + shares[name].wrap,
            _share_context(request.session, sender, name, digest),
        )
        for name in others
    ]
    wrapped = _seal(
        wrapping_key(wrap, request.session, sender),
        b"".join(mask_keys[name] for name in others),
        _share_context(request.session, sender, "", digest),
    )
    answer = ShareAnswer(
        wrapped=wrapped,
        own=own_check(request.session, sender, own),
        sealed=b"".join(sealed),
        checks=b"".join(share_checks(request.session, sender, name, shares[name]) for name in names),
    )
    return Shared(answer, own, shares[sender])


def open_share(
    request: ShareRequest, *, sender: str, receiver: str, pair: bytes, sealed: bytes, checks: bytes
) -> SharePair:
    """Open what `sender` sealed for `receiver`.

    Raises:
        HanseError: TAMPERED when it is of another session, sender, receiver or list of members, was altered or
            truncated, or does not match its checks.
    """
    key = share_key(pair, request.session, sender, receiver)
    both = _open(key, sealed, _share_context(request.session, sender, receiver, request.digest), f"share of {sender}")
    if len(both) != 2 * shamir.SHARE_BYTES:
        raise HanseError(ErrorCode.TAMPERED, f"share of {sender}: {len(both)} bytes, two shares were expected")
    shares = SharePair(both[: shamir.SHARE_BYTES], both[shamir.SHARE_BYTES :])
    if not hmac.compare_digest(share_checks(request.session, sender, receiver, shares), checks):
        raise HanseError(ErrorCode.TAMPERED, f"share of {sender}: it is not the one that {sender} announced")
    return shares


def unwrap_keys(request: ShareRequest, sender: str, wrap: bytes, wrapped: bytes) -> dict[str, bytes]:
    """A dropped site's mask keys of this session, by the other member.

    Raises:
        HanseError: TAMPERED when the secret does not open them.
    """
    others = [name for name in request.names if name != sender]
    context = _share_context(request.session, sender, "", request.digest)
    keys = _open(wrapping_key(wrap, request.session, sender), wrapped, context, f"mask keys of {sender}")
    return records(keys, KEY_BYTES, others, what=f"mask keys of {sender}")


def share_checks(session: str, sender: str, receiver: str, shares: SharePair) -> bytes:
    """SHA-256 of both shares (64 bytes). A share has 256 bits of entropy: its hash says nothing about it."""
    return share_check(session, sender, receiver, shares.own, own=True) + share_check(
        session, sender, receiver, shares.wrap, own=False
    )


def share_check(session: str, sender: str, receiver: str, share: bytes, *, own: bool) -> bytes:
    """SHA-256 of one share, bound to what it is."""
    kind = "own" if own else "wrap"
    return hashlib.sha256(label("share check", session, sender, receiver, kind) + b"\x1f" + share).digest()


def own_check(session: str, sender: str, own: bytes) -> bytes:
    """SHA-256 that the recovered seed of a site's own mask must match."""
    return hashlib.sha256(label("own check", session, sender) + b"\x1f" + own).digest()


def agreement_statement(request: ShareRequest, members: Sequence[str], asked: bytes | None) -> bytes:
    """What a site signs about its masked answer: in one session all must mask with the same members, and answer the
    same.

    Args:
        asked: digest of what it answers; None: of a hub of release 0.1.0, where nobody signed that.
    """
    named = hashlib.sha256("\x1f".join(members).encode()).digest()
    what = label("agreement" if asked is None else "agreement 2", request.project, request.run, request.session)
    return what + b"\x1f" + request.digest + named + (asked or b"")


def _share_context(session: str, sender: str, receiver: str, digest: bytes) -> bytes:
    return label("sealed", session, sender, receiver) + b"\x1f" + digest


def _seal(key: bytes, plaintext: bytes, context: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, context)


def _open(key: bytes, sealed: bytes, context: bytes, what: str) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise HanseError(
            ErrorCode.TAMPERED, f"{what}: it does not open: it is of another session or site, or was altered"
        ) from None
