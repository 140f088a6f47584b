"""A chain of codecs, and what it makes of a portion of an entry.

A portion begins with a byte that says how its values' places are told: all are there (WHOLE), by a bit each (BITMAP),
by 16-bit numbers (PLACES, where at most one in sixteen is sent), by the seed (SEEDED), or none is (NONE). Of BITMAP no
count is needed; PLACES and SEEDED have it. PRODUCT has rows of a factor in place of values. RAW is a portion of a
buffer, as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Protocol, cast

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.config import CodecConfig, check_chain, sections_of
from hanse_learning.codecs.narrow import BY_NUMPY, Narrowing
from hanse_learning.codecs.packers import Plain
from hanse_learning.codecs.quantizers import BFloat16, Exact, Float16
from hanse_learning.codecs.stages import Draw, Factorizer, Mask, Packer, Quantizer, Sparsifier, Values


class Positions(IntEnum):
    """How the places of a portion's values are told."""

    RAW = 0
    WHOLE = 1
    BITMAP = 2
    PLACES = 3
    SEEDED = 4
    NONE = 5
    PRODUCT = 6


class Rows(Protocol):
    """What a portion of a product is made of (`hanse_learning.codecs.factors.RowsOf`)."""

    @property
    def count(self) -> int:
        """Numbers that are sent."""
        ...

    def product(self, rows: Values, dtype: np.dtype[Any]) -> Values:
        """The portion's values, of them."""
        ...


@dataclass(frozen=True, slots=True)
class Chain:
    """The codecs of a chain, built.

    Attributes:
        sections: as the job names them.
        sparsifier: None: all values are sent.
        factorizer: None: matrices are sent as their values.
    """

    sections: tuple[dict[str, Any], ...]
    sparsifier: Sparsifier | None
    factorizer: Factorizer | None
    quantizer: Quantizer
    packer: Packer

    def choose(self, values: Values, name: str, draw: Draw) -> Mask:
        """Which of an entry's values (n,) the sparsifier sends; see `Sparsifier.choose`.

        Raises:
            HanseError: INVALID_INPUT where it gives no mask: numbers of places would be taken for truth values.
        """
        found: object = cast(Sparsifier, self.sparsifier).choose(values, name, draw)
        if not isinstance(found, np.ndarray) or found.dtype != np.bool_ or found.shape != values.shape:
            raise _other(self.sparsifier, "choose", found, f"a mask of bool {values.shape}")
        return found

    def numbers(self, values: Values, draw: Draw) -> bytes:
        """Values (n,) as the quantizer writes them; see `Quantizer.write`."""
        return _bytes(self.quantizer, "write", self.quantizer.write(values, draw))

    def read_numbers(self, data: BytesIn, count: int, dtype: np.dtype[Any]) -> Values:
        """Values (count,) of `dtype`, of the quantizer's bytes; see `Quantizer.read`.

        Raises:
            HanseError: INVALID_INPUT where it gives others: those of another dtype would be read as other numbers.
        """
        found: object = self.quantizer.read(data, count, dtype)
        if not isinstance(found, np.ndarray) or found.dtype != dtype or found.shape != (count,):
            raise _other(self.quantizer, "read", found, f"{dtype} ({count},)")
        return found

    def packed(self, data: bytes) -> bytes:
        """A frame's bytes as the packer packs them; see `Packer.pack`."""
        return _bytes(self.packer, "pack", self.packer.pack(data))

    def unpacked(self, data: bytes, most: int) -> bytes:
        """What was packed; see `Packer.unpack`."""
        return _bytes(self.packer, "unpack", self.packer.unpack(data, most))

    def write(self, values: Values, kept: Mask | None, draw: Draw) -> bytes:
        """A portion of a parameter: values (n,), and which of them the sparsifier sends; None: all."""
        if kept is None:
            return bytes([Positions.WHOLE]) + self.numbers(values, draw)
        seeded = cast(Sparsifier, self.sparsifier).seeded
        places = np.flatnonzero(kept)
        # Bool indexing is slow where few are kept, and taking by places where many are.
        chosen = values[places]
        if not seeded and not chosen.all():
            # A zero arrives as one where it is not sent, and of one bit (`ternary`) it could not arrive otherwise.
            kept = kept & (values != 0)
            places, chosen = places[chosen != 0], chosen[chosen != 0]
        count, size = len(places), len(values)
        if not count:
            return bytes([Positions.NONE])
        if count == size:
            return bytes([Positions.WHOLE]) + self.numbers(values, draw)
        sent = self.numbers(chosen, draw)
        if seeded:
            return bytes([Positions.SEEDED]) + count.to_bytes(4, "little") + sent
        if 16 * count < size:
            return bytes([Positions.PLACES]) + count.to_bytes(4, "little") + places.astype("<u2").tobytes() + sent
        return bytes([Positions.BITMAP]) + np.packbits(kept).tobytes() + sent

    def write_rows(self, rows: Values, draw: Draw) -> bytes:
        """A portion of a product: the rows (n,) of P that it takes."""
        return bytes([Positions.PRODUCT]) + self.numbers(rows, draw)

    def read(
        self, data: BytesIn, dtype: np.dtype[Any], seeded: Mask | None, size: int, rows: Rows | None = None
    ) -> Values:
        """A portion of a parameter, (size,) of `dtype`, with zeros where nothing was sent.

        Args:
            seeded: where the chain's sparsifier goes by the seed: what it chooses.
            rows: of an entry that may be a product.

        Raises:
            HanseError: INVALID_INPUT for bytes that `write` does not make.
        """
        told = data.number("u1")
        if told == Positions.WHOLE:
            return self.read_numbers(data, size, dtype)
        if told == Positions.PRODUCT and rows is not None:
            return rows.product(self.read_numbers(data, rows.count, dtype), dtype)
        values = np.zeros(size, dtype)
        if told == Positions.NONE:
            return values
        if told == Positions.BITMAP:
            bits = data.array("u1", -(-size // 8))
            kept = np.unpackbits(bits, count=size).view(np.bool_)
            values[kept] = self.read_numbers(data, int(np.count_nonzero(kept)), dtype)
            return values
        if told not in (Positions.PLACES, Positions.SEEDED):
            raise data.bad(f"begins a portion with {told}, 1 to 6 was expected")
        count = data.number("<u4")
        if told == Positions.PLACES:
            places = data.array("<u2", count).astype(np.intp)
            if count and (int(places[-1]) >= size or bool(np.any(np.diff(places) <= 0))):
                raise data.bad(f"has places that do not rise, or are beyond its {size} values")
        else:
            if seeded is None or int(np.count_nonzero(seeded)) != count:
                raise data.bad("has values at other places than its seed says")
            places = np.flatnonzero(seeded)
        values[places] = self.read_numbers(data, count, dtype)
        return values


def _bytes(codec: object, method: str, made: object) -> bytes:
    if not isinstance(made, bytes | bytearray | memoryview):
        raise _other(codec, method, made, "bytes")
    return cast(bytes, made)


def _other(codec: object, method: str, made: object, expected: str) -> HanseError:
    shown = f"{made.dtype} {made.shape}" if isinstance(made, np.ndarray) else type(made).__name__
    told = f"codec {type(codec).__name__}: {method} gives {shown}, {expected} was expected"
    return HanseError(ErrorCode.INVALID_INPUT, told, hint="docs/extending.md says what a codec's methods give")


def build_chain(chain: Sequence[Mapping[str, Any]], narrowing: Narrowing = BY_NUMPY) -> Chain:
    """The chain of a job's `codec` section.

    Args:
        narrowing: how numbers are written in 16 bits; the bits are the same by any.

    Raises:
        HanseError: as `check_chain`.
    """
    checked = check_chain(chain)
    by_role: dict[str, CodecConfig] = {config.role: config for config in checked}
    if "difference" in by_role:
        raise invalid("chain", by_role["difference"].name, "one that makes frames; a delta is of whole files")
    built = {role: config.build() for role, config in by_role.items()}
    quantizer = built.get("quantize", Exact())
    if isinstance(quantizer, Float16 | BFloat16):
        quantizer = replace(quantizer, narrowing=narrowing)
    return Chain(
        sections_of(checked),
        cast("Sparsifier | None", built.get("sparsify")),
        cast("Factorizer | None", built.get("factor")),
        cast(Quantizer, quantizer),
        cast(Packer, built.get("pack", Plain())),
    )
