"""What a role has seen in a real run, searched for what it must not have seen.

A view is the bytes of every message and file that reached a role. A secret (plain update, seed, noise) is looked for
as it is, and as base64 and hexadecimal carry it, in windows of 16 bytes, so that a part of it is found, too.
"""

from __future__ import annotations

import base64
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError

WINDOW = 16
_WINDOWS = 64
_CHUNK = 1 << 24
_LEAST_DISTINCT = 6
_TABLE_BITS = 22

Secret = bytes | NDArray[Any]


@dataclass(frozen=True, slots=True)
class SecretSeen:
    """A secret in a view: which, in which of the view's pieces, where, and how it was written there."""

    secret: str
    piece: int
    offset: int
    form: str


def find_secret(view: Iterable[bytes], secrets: Mapping[str, Secret]) -> list[SecretSeen]:
    """All secrets of which a part stands in a view, each once for a piece and form.

    Args:
        view: the bytes of messages and files.
        secrets: by name; arrays are looked for in their own type, and floats as float32 and float64, too.

    Raises:
        HanseError: INVALID_INPUT for a secret that is too short or too even to be told from chance.
    """
    needles: dict[bytes, list[tuple[str, str, bytes]]] = {}
    for name, secret in secrets.items():
        for form, needle in _needles(name, secret):
            needles.setdefault(needle[:WINDOW], []).append((name, form, needle))
    found: dict[tuple[str, int, str], SecretSeen] = {}
    for begins, joined in _joined(view):
        for offset in _places(joined, needles):
            for name, form, needle in needles.get(joined[offset : offset + WINDOW], ()):
                if joined.startswith(needle, offset):
                    begin, index = begins[bisect_right(begins, offset, key=itemgetter(0)) - 1]
                    found.setdefault((name, index, form), SecretSeen(name, index, offset - begin, form))
    return list(found.values())


def _places(data: bytes, starts: Iterable[bytes]) -> list[int]:
    """Where one of these starts may stand, in order; by its sixteen bytes' place in a table, all at once, for a search
    for each of many thousands took most of the time of a test."""
    table = np.zeros(1 << _TABLE_BITS, bool)
    table[_in_table(np.frombuffer(b"".join(starts), "<u8").reshape(-1, 2))] = True
    places = []
    for shift in range(8):
        words = np.frombuffer(data, "<u8", offset=shift, count=max(0, len(data) - shift) // 8)
        pairs = np.lib.stride_tricks.sliding_window_view(words, 2) if len(words) > 1 else np.empty((0, 2), "<u8")
        places.append(np.flatnonzero(table[_in_table(pairs)]) * 8 + shift)
    return sorted(np.concatenate(places).tolist())


def _in_table(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = pairs[:, 0] * np.uint64(0x9E3779B97F4A7C15) + pairs[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
    return mixed >> np.uint64(64 - _TABLE_BITS)


def _joined(view: Iterable[bytes]) -> Iterator[tuple[list[tuple[int, int]], bytes]]:
    """The pieces of a view together, some MiB at a time, with where each begins and its number; what stands between two
    is by chance, so no secret is found across."""
    begins: list[tuple[int, int]] = []
    joined = bytearray()
    for index, piece in enumerate(view):
        begins.append((len(joined), index))
        joined += piece + os.urandom(4 * WINDOW)
        if len(joined) >= _CHUNK:
            yield begins, bytes(joined)
            begins, joined = [], bytearray()
    if begins:
        yield begins, bytes(joined)


def view_of(*roots: Path) -> Iterator[bytes]:
    """The bytes of all files under some folders, in pieces of 16 MiB that overlap by more than a window's length."""
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                before = b""
                while block := file.read(_CHUNK):
                    yield before + block
                    before = block[-4 * WINDOW :]


def _needles(name: str, secret: Secret) -> Iterator[tuple[str, bytes]]:
    for form, data in _forms(secret):
        windows = list(_windows(data))
        if not windows:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"secret {name}: {len(data)} bytes as {form}, too few distinct bytes: it could be found by chance",
            )
        for window in windows:
            yield form, window
            yield f"{form} in hex", window.hex().encode()
            for skip in range(3):  # of three possible places in the groups of base64
                middle = window[skip:]
                middle = middle[: len(middle) // 3 * 3]
                yield f"{form} in base64", base64.b64encode(middle)


def _forms(secret: Secret) -> Iterator[tuple[str, bytes]]:
    if isinstance(secret, bytes):
        yield "bytes", secret
        return
    types: set[np.dtype[Any]] = {secret.dtype}
    if secret.dtype.kind == "f":
        types |= {np.dtype("<f4"), np.dtype("<f8")}
    for dtype in sorted(types, key=str):
        yield str(dtype), np.ascontiguousarray(secret, dtype=dtype).tobytes()


def _windows(data: bytes) -> Iterator[bytes]:
    """Up to 64 windows, evenly spread, leaving out those (of zeros, say) that stand in many files."""
    last = len(data) - WINDOW
    if last < 0:
        return
    step = max(8, last // _WINDOWS // 8 * 8)
    for start in range(0, last + 1, step):
        window = data[start : start + WINDOW]
        if len(set(window)) >= _LEAST_DISTINCT:
            yield window
