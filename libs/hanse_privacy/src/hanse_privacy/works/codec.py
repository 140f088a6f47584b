"""The sets of a work as bytes, by the places that their members have in a list: of few members their places, of more
than 256 a bit for each place, so that a set of 10,000 takes 1.25 KB.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.chain import KEY_BYTES, Members, SetChain, SummedSets

_LISTED = 256
_CHAIN = struct.Struct(">II")
_SET = struct.Struct(">BI")


def encode(work: SummedSets, places: Mapping[bytes, int]) -> bytes:
    """The sets.

    Args:
        places: of every member, 0 or more.
    """
    out = bytearray()
    for chain in work.chains:
        out += _CHAIN.pack(chain.gap, len(chain.sets))
        for members in chain.sets:
            out += _encode_set(sorted(places[key] for key in members))
    return bytes(out)


def decode(data: bytes, keys: Mapping[int, bytes] | Sequence[bytes]) -> SummedSets:
    """What `encode` made.

    Args:
        keys: of the members, by their places.

    Raises:
        HanseError: TAMPERED where the bytes are not such.
    """
    chains, at = [], 0
    try:
        while at < len(data):
            gap, count = _CHAIN.unpack_from(data, at)
            at += _CHAIN.size
            sets = []
            for _ in range(count):
                listed, length = _SET.unpack_from(data, at)
                at += _SET.size
                sets.append(frozenset(keys[place] for place in _places(data[at : at + length], listed, length)))
                at += length
            chains.append(SetChain(gap, tuple(sets)))
    except (struct.error, LookupError, ValueError) as error:
        raise HanseError(ErrorCode.TAMPERED, f"sets of a work: they are not as they were written: {error!r}") from None
    return SummedSets(tuple(chains))


def encode_whole(work: SummedSets) -> tuple[bytes, bytes]:
    """(the members' keys, the sets by their places among these)."""
    keys = sorted(work.members)
    return b"".join(keys), encode(work, {key: place for place, key in enumerate(keys)})


def decode_whole(keys: bytes, data: bytes) -> SummedSets:
    """What `encode_whole` made; raises as `decode`."""
    return decode(data, [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)])


def encode_set(members: Members) -> bytes:
    """One set by the keys themselves."""
    return b"".join(sorted(members))


def decode_set(data: bytes) -> Members:
    """What `encode_set` made."""
    return frozenset(data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES))


def _encode_set(places: Sequence[int]) -> bytes:
    if len(places) <= _LISTED:
        body = struct.pack(f">{len(places)}I", *places)
        return _SET.pack(1, len(body)) + body
    bits = bytearray(places[-1] // 8 + 1)
    for place in places:
        bits[place // 8] |= 1 << place % 8
    return _SET.pack(0, len(bits)) + bits


def _places(body: bytes, listed: int, length: int) -> Sequence[int]:
    if len(body) != length:
        raise ValueError("cut off")
    if listed:
        return struct.unpack(f">{length // 4}I", body)
    return [8 * at + bit for at, byte in enumerate(body) if byte for bit in range(8) if byte >> bit & 1]
