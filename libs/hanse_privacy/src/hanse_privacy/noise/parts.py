"""What a site gives the shuffler, and how it travels: sealed beside its mask's seed, for the compensator. No numpy.

Of each pair of parts (d0, d1) of its noise a site adds d0 by itself, and gives away the difference D = d1 - d0. The
shuffler tosses a coin for each, and takes what it chose off the sum of the masks. This equals a
shuffler for the tuples of Mugunthan (2022, Protocol 1): it would get (s + d0, s + d1) with a uniform s, learn D and no
more, and give receivers and server what is uniform but for the sum. What cancels in the sum is left out here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hanse_fabric.errors import ErrorCode, HanseError, invalid

PAIRS = 4
"""More hardly help: n - 1 colluding sites leave (n - 1) m/(2 (m + 1)) + 1 Laplace variables' variance with m pairs."""

_REQUEST_BYTES = 900 << 10
"""Of the message with which the compensator gets all sites' parts and seeds, in base64."""
_MEMBER_BYTES = 700
"""Of a site's sealed seed, signature and name in it."""
_SITE_BYTES = 190 << 10
"""Of one site's parts."""

_HEADER = struct.Struct(">BBBI")
_FORM = 1
_NONCE = bytes(12)  # the key is used once


@dataclass(frozen=True, slots=True)
class Parts:
    """The differences of a site's pairs of parts.

    Attributes:
        pairs, count: how many, of each of how many coordinates.
        width: bytes of each.
        values: pairs * count signed little-endian integers; never shown.
    """

    pairs: int
    count: int
    width: int
    values: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not (1 <= self.pairs <= 255 and 1 <= self.width <= 8 and 1 <= self.count < 2**32):
            raise invalid("noise parts", (self.pairs, self.width, self.count), "pairs, bytes and coordinates of noise")
        if len(self.values) != self.pairs * self.count * self.width:
            expected = f"{self.pairs} x {self.count} of {self.width} bytes"
            raise invalid("noise parts", f"{len(self.values)} bytes", expected)


def width_for(steps: int) -> int:
    """Bytes of a difference of parts of noise with this scale: 64 scales to either side, more than ever occurs."""
    return -(-(steps.bit_length() + 7) // 8)


def pairs_for(active: int, count: int, steps: int) -> int:
    """How many pairs a site draws: as many as travel, and help.

    Raises:
        HanseError: TOO_LARGE for a model of too many coordinates for so many sites.
    """
    width = width_for(steps)
    room = min(_SITE_BYTES, max(0, _REQUEST_BYTES - _MEMBER_BYTES * active) * 3 // 4 // active)
    pairs = min(PAIRS, active - 1, room // (count * width))
    if pairs < 1:
        raise HanseError(
            ErrorCode.TOO_LARGE,
            f"privacy.noise: oblivious-shuffled for {count} coordinates of {active} sites, at most {room // width} can "
            "be shuffled",
            hint="use noise: distributed-gamma, a smaller model, or fewer sites in a round",
        )
    return pairs


def seal_parts(parts: Parts, seed: bytes, *, project: str, run: str, session: str, participant: str) -> bytes:
    """Encrypt parts for whoever can open the seed, of this sum and participant and of nothing else."""
    header = _HEADER.pack(_FORM, parts.pairs, parts.width, parts.count)
    context = _context(project, run, session, participant)
    return ChaCha20Poly1305(_key(seed)).encrypt(_NONCE, header + parts.values, context)


def open_parts(sealed: bytes, seed: bytes, *, project: str, run: str, session: str, participant: str) -> Parts:
    """Open what `seal_parts` made.

    Raises:
        HanseError: TAMPERED when it was made for another seed or sum, or changed, or is none.
    """
    try:
        data = ChaCha20Poly1305(_key(seed)).decrypt(_NONCE, sealed, _context(project, run, session, participant))
        form, pairs, width, count = _HEADER.unpack(data[: _HEADER.size])
        if form != _FORM:
            raise ValueError("form")
        return Parts(pairs, count, width, data[_HEADER.size :])
    except (InvalidTag, ValueError, struct.error, HanseError):
        raise HanseError(
            ErrorCode.TAMPERED,
            f"noise of {participant} for {session}: it does not open",
            hint="it was sealed with another seed or for another session, or changed on its way",
        ) from None


def coin_key(private_key: bytes, seeds: tuple[bytes, ...], *, project: str, run: str, session: str) -> bytes:
    """The key of the shuffler's coins: the same for the same set, so that asking again brings the same sum.

    Nobody can tell the coins who lacks the compensator's key, or any one member's seed.
    """
    info = b"hanse shuffler coins 1" + _context(project, run, session)
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(private_key + b"".join(seeds))


def _key(seed: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"hanse noise parts 1").derive(seed)


def _context(*names: str) -> bytes:
    encoded = [name.encode() for name in names]
    return b"".join(struct.pack(">I", len(name)) + name for name in encoded)
