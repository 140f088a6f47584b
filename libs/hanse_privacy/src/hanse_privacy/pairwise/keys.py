"""Keys of pairs of sites: agreed once a run by X25519, authenticated by the sites' enrolled keys, and derived anew for
every session and purpose by HKDF-SHA256 (indexed, not chained: lost rounds and restarts do no harm).
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from hanse_fabric.errors import ErrorCode, HanseError, invalid

KEY_BYTES = 32


def label(purpose: str, *parts: str) -> bytes:
    """Bytes that say what something belongs to. Parts are names, whose alphabets lack the separator."""
    return "\x1f".join(("hanse pairwise", purpose, *parts)).encode()


class RunKey:
    """A site's X25519 key of one run. It never leaves the site, in no share either."""

    def __init__(self, private: bytes) -> None:
        """Raises HanseError INVALID_INPUT unless `private` is 32 bytes."""
        if len(private) != KEY_BYTES:
            raise invalid("run key", f"{len(private)} bytes", f"a raw X25519 key of {KEY_BYTES} bytes")
        self._key = X25519PrivateKey.from_private_bytes(private)

    @classmethod
    def create(cls) -> RunKey:
        """A fresh key from the system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def private_bytes(self) -> bytes:
        """The 32 bytes that a site keeps in its own folder."""
        return self._key.private_bytes_raw()

    @property
    def public_bytes(self) -> bytes:
        """The 32 bytes that are advertised."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, peer_key: bytes, *, project: str, run: str, own: str, peer: str) -> bytes:
        """The pair's key (32 bytes): the same at both ends, and bound to project, run, names and public keys.

        Raises:
            HanseError: TAMPERED for a point of low order, whose product everybody knows; INVALID_INPUT for a key that
                is not 32 bytes, or for a site that is its own peer.
        """
        if len(peer_key) != KEY_BYTES:
            raise invalid(f"key of {peer}", f"{len(peer_key)} bytes", f"a raw X25519 key of {KEY_BYTES} bytes")
        if own == peer or peer_key == self.public_bytes:
            raise invalid("peer", peer, "another site than this one")
        try:
            product = self._key.exchange(X25519PublicKey.from_public_bytes(peer_key))
        except ValueError:
            raise HanseError(
                ErrorCode.TAMPERED,
                f"key of {peer}: it is a point of low order, with which no secret can be agreed on",
                hint="whoever made this key wants to know the pair's masks; take part in nothing with that site",
            ) from None
        (low, low_key), (high, high_key) = sorted(((own, self.public_bytes), (peer, peer_key)))
        info = label("pair", project, run, low, high) + b"\x1f" + low_key + high_key
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(product)


def advert_statement(project: str, run: str, participant: str, key: bytes) -> bytes:
    """What a site signs with its enrolled key about its key of the run."""
    return label("key", project, run, participant) + b"\x1f" + key


def mask_key(pair: bytes, session: str) -> bytes:
    """The seed of the pair's masks in one session: all that is ever recovered of a pair."""
    return _expand(pair, label("mask", session))


def exchange_key(pair: bytes, session: str, one: str, other: str) -> bytes:
    """The key of the pair's masks in a session's exchange. It is no mask key: nothing from which it could be made is
    ever shared, wrapped or recovered."""
    return _expand(pair, label("exchange", session, *sorted((one, other))))


def sum_seed(exchange: bytes, key: str, heard: bytes | None) -> bytes:
    """The seed of the pair's mask on one sum of an exchange, which masks one array.

    Args:
        heard: digest of the request and of all totals that were received before: to whom others were told, the masks
            do not cancel. None: of a hub of release 0.1.0.
    """
    return _expand(exchange, label("sum", key) + (b"" if heard is None else b"\x1f" + heard))


def share_key(pair: bytes, session: str, sender: str, receiver: str) -> bytes:
    """The key of what `sender` seals for `receiver` in one session."""
    return _expand(pair, label("share", session, sender, receiver))


def wrapping_key(secret: bytes, session: str, sender: str) -> bytes:
    """The key around a site's mask keys of one session, from the secret that it shares."""
    return _expand(secret, label("wrap", session, sender))


def _expand(key: bytes, info: bytes) -> bytes:
    return HKDFExpand(SHA256(), KEY_BYTES, info=info).derive(key)
