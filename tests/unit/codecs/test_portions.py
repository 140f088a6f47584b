"""How a portion of an entry says where its values are, byte for byte, and what is refused of what somebody sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.codecs.bytes_in import BytesIn
from hanse_learning.codecs.chain import Chain, Positions, build_chain
from hanse_learning.codecs.frames import draw_of
from hanse_learning.codecs.narrow import BY_NUMPY, Narrowing
from hanse_learning.codecs.packers import Plain
from hanse_learning.codecs.quantizers import BFloat16, Exact, Float16
from hanse_learning.codecs.stages import Mask, Values

BY_SIZE = build_chain([{"name": "top_k", "fraction": 0.1}])
BY_SEED = build_chain([{"name": "random_k", "fraction": 0.1}])
F32 = np.dtype("<f4")
DRAW = draw_of(1, 0, 0)


class TwoRows:
    """A product of which a portion takes two numbers."""

    count = 2

    def product(self, rows: Values, dtype: np.dtype[Any]) -> Values:
        return np.repeat(rows, 20).astype(dtype)


def mask(size: int, places: Iterable[int]) -> Mask:
    kept = np.zeros(size, np.bool_)
    kept[list(places)] = True
    return kept


def bytes_of(told: int, *parts: int | Values | bytes) -> bytes:
    """A portion: counts are of four bytes, values as they are."""
    made = [
        part.to_bytes(4, "little") if isinstance(part, int) else part if isinstance(part, bytes) else part.tobytes()
        for part in parts
    ]
    return bytes([told]) + b"".join(made)


def places_of(*places: int) -> bytes:
    return np.array(places, "<u2").tobytes()


def read(data: bytes, seeded: Mask | None = None, *, size: int = 40, rows: TwoRows | None = None) -> list[float]:
    taken = BytesIn(data)
    found = BY_SIZE.read(taken, F32, seeded, size, rows)
    taken.end()
    assert found.dtype == F32
    return [float(value) for value in found]


def test_the_first_byte_is_the_same_in_every_release() -> None:
    names = ("RAW", "WHOLE", "BITMAP", "PLACES", "SEEDED", "NONE", "PRODUCT")
    assert {name: Positions[name].value for name in names} == {name: number for number, name in enumerate(names)}
    assert len(Positions) == len(names)


def test_a_portion_says_where_its_values_are_in_as_few_bytes_as_it_can() -> None:
    values = np.arange(1, 993, dtype=F32)

    def made(chain: Chain, places: Iterable[int], values: Values = values) -> bytes:
        return chain.write(values, mask(values.size, places), DRAW)

    assert BY_SIZE.write(values, None, DRAW) == BY_SEED.write(values, None, DRAW) == bytes_of(1, values)
    assert made(BY_SIZE, []) == bytes_of(5)
    assert made(BY_SIZE, [3, 5], 0 * values) == bytes_of(5), "a zero arrives where it is not sent"
    assert made(BY_SIZE, range(992)) == bytes_of(1, values)
    assert made(BY_SIZE, range(61)) == bytes_of(3, 61, places_of(*range(61)), values[:61])
    # Of 62 a bit each for 992 values is less: 124 bytes, and no count.
    assert made(BY_SIZE, range(62)) == bytes_of(2, np.packbits(values <= 62).tobytes(), values[:62])
    # One is a value as any other.
    some = np.where(values % 2 == 0, values, 0).astype(F32)
    some[0] = 1
    assert made(BY_SIZE, range(6), some) == bytes_of(3, 4, places_of(0, 1, 3, 5), some[[0, 1, 3, 5]])
    sent = [0, *range(1, 200, 2)]
    assert made(BY_SIZE, range(200), some) == bytes_of(2, np.packbits(mask(992, sent)).tobytes(), some[sent])
    # Whoever has the seed knows the places, and which of them have zeros it is told.
    assert made(BY_SEED, range(100), some) == bytes_of(4, 100, some[:100])
    assert made(BY_SEED, range(4)) == bytes_of(4, 4, values[:4])
    assert BY_SIZE.write_rows(values[:5], DRAW) == bytes_of(6, values[:5])


@pytest.mark.parametrize("size", [1, 8, 9, 40, 1000])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_a_portion_is_read_as_it_was_written(size: int, share: float) -> None:
    random = np.random.default_rng(size)
    values, kept = random.standard_normal(size).astype(F32), random.random(size) < share
    for chain, seeded in ((BY_SIZE, None), (BY_SEED, kept)):
        written = BytesIn(chain.write(values, kept, DRAW))
        np.testing.assert_array_equal(chain.read(written, F32, seeded, size), np.where(kept, values, 0))
        written.end()
        whole = BytesIn(chain.write(values, None, DRAW))
        np.testing.assert_array_equal(chain.read(whole, F32, seeded, size), values)
        whole.end()


def test_an_entry_that_may_be_a_product_has_portions_of_any_kind() -> None:
    values = np.arange(1, 41, dtype=F32)
    assert read(bytes_of(6, values[:2]), rows=TwoRows()) == [1.0] * 20 + [2.0] * 20
    assert read(bytes_of(1, values), rows=TwoRows()) == values.tolist()
    assert read(bytes_of(5), rows=TwoRows()) == [0.0] * 40
    assert read(bytes_of(3, 1, places_of(39), values[:1]), rows=TwoRows()) == [0.0] * 39 + [1.0]


@pytest.mark.parametrize("told", [0, 6, 7, 255])
def test_a_portion_that_begins_with_another_byte_is_refused(told: int) -> None:
    """6 where the entry is no product, and 0 where it is a parameter."""
    with pytest.raises(HanseError, match=f"begins a portion with {told}, 1 to 6 was expected") as raised:
        read(bytes_of(told, 1, bytes(400)))
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_places_rise_and_are_all_of_the_portion() -> None:
    def places(*given: int) -> list[float]:
        return read(bytes_of(3, len(given), places_of(*given), np.ones(len(given), F32)))

    assert places() == [0.0] * 40
    assert places(0, 1, 39) == [1.0, 1.0, *[0.0] * 37, 1.0]
    for wrong in ((40,), (0, 40), (0, 41), (40, 0), (3, 3), (4, 3), (0, 5, 4)):
        with pytest.raises(HanseError, match="places that do not rise, or are beyond its 40 values") as raised:
            places(*wrong)
        assert raised.value.code is ErrorCode.INVALID_INPUT


def test_values_at_other_places_than_the_seed_says_are_refused() -> None:
    ones, said = np.ones(3, F32), mask(40, (0, 7, 39))
    assert np.flatnonzero(read(bytes_of(4, 3, ones), said)).tolist() == [0, 7, 39]
    for count, seeded in ((2, said), (4, said), (3, None), (0, None)):
        with pytest.raises(HanseError, match="has values at other places than its seed says") as raised:
            read(bytes_of(4, count, np.ones(count, F32)), seeded)
        assert raised.value.code is ErrorCode.INVALID_INPUT


def test_a_portion_that_ends_too_early_is_refused() -> None:
    for cut in (bytes_of(1, bytes(159)), bytes_of(2, bytes(4)), bytes_of(2, b"\x80" + bytes(4), bytes(3)), b""):
        with pytest.raises(HanseError, match="ends at byte"):
            read(cut)


def test_a_delta_makes_no_frames() -> None:
    with pytest.raises(HanseError, match=r"chain: .*delta.*one that makes frames"):
        build_chain([{"name": "delta"}])


def test_numbers_of_16_bits_are_narrowed_by_what_the_machine_has() -> None:
    narrowing = Narrowing(BY_NUMPY.half, BY_NUMPY.brain)
    for name, kind in (("float16", Float16), ("bfloat16", BFloat16)):
        quantizer = build_chain([{"name": name}], narrowing).quantizer
        assert isinstance(quantizer, kind)
        assert quantizer.narrowing is narrowing


def test_a_chain_that_names_neither_quantizer_nor_packer_sends_numbers_and_bytes_as_they_are() -> None:
    chain = build_chain([{"name": "top_k", "fraction": 0.1}])
    assert (type(chain.quantizer), type(chain.packer), chain.factorizer) == (Exact, Plain, None)
    chosen = chain.choose(np.arange(-10, 10, dtype=F32), "weight", DRAW)
    assert np.flatnonzero(chosen).tolist() == [0, 1]
