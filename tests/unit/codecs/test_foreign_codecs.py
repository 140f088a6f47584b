"""What a codec of a package gives in another form than it was asked for is refused in words."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_learning.codecs.chain import Chain
from hanse_learning.codecs.packers import Plain
from hanse_learning.codecs.quantizers import Exact
from hanse_learning.codecs.reading import decode
from hanse_learning.codecs.writing import encode

LAYOUT = Layout.of([Entry("weight", "F32", (10,))])
VALUES = np.arange(1, 11, dtype=np.float32)


class Places:
    """A sparsifier that gives numbers of places, as numpy's functions do."""

    seeded = False

    def choose(self, values: Any, name: str, draw: Any) -> Any:
        return np.array([0, 5])


class TooFew(Places):
    """A sparsifier that gives a mask of some values only."""

    def choose(self, values: Any, name: str, draw: Any) -> Any:
        return values[1:] > 0


class Weights(Places):
    """A sparsifier that gives numbers where a mask is asked for."""

    def choose(self, values: Any, name: str, draw: Any) -> Any:
        return (values > 0).astype(np.uint8)


class Listed(Places):
    """A sparsifier that gives a list."""

    def choose(self, values: Any, name: str, draw: Any) -> Any:
        return [True] * len(values)


class Integers:
    """A quantizer that forgets what dtype it was asked for."""

    def write(self, values: Any, draw: Any) -> Any:
        return values.astype("<i4").tobytes()

    def read(self, data: Any, count: int, dtype: Any) -> Any:
        return data.array("<i4", count)


class Wide(Integers):
    """A quantizer that multiplies, so that its values become float64."""

    def read(self, data: Any, count: int, dtype: Any) -> Any:
        return data.array("<i4", count) * 0.5


class Short(Integers):
    """A quantizer that reads a number less than it was asked for."""

    def read(self, data: Any, count: int, dtype: Any) -> Any:
        return data.array(dtype.str, count)[1:]


class ReadsList(Integers):
    """A quantizer that reads a list."""

    def read(self, data: Any, count: int, dtype: Any) -> Any:
        return data.array(dtype.str, count).tolist()


class Unwritten(Integers):
    """A quantizer that writes no bytes."""

    def write(self, values: Any, draw: Any) -> Any:
        return values


class Texts:
    """A packer that makes texts."""

    def pack(self, data: bytes) -> Any:
        return "packed"

    def unpack(self, data: bytes, most: int) -> bytes:
        return data


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        (
            Chain((), Places(), None, Exact(), Plain()),
            r"codec Places: choose gives int64 \(2,\), a mask of bool \(10,\) was expected",
        ),
        (
            Chain((), TooFew(), None, Exact(), Plain()),
            r"codec TooFew: choose gives bool \(9,\), a mask of bool \(10,\) was expected",
        ),
        (
            Chain((), Weights(), None, Exact(), Plain()),
            r"codec Weights: choose gives uint8 \(10,\), a mask of bool \(10,\) was expected",
        ),
        (
            Chain((), Listed(), None, Exact(), Plain()),
            r"codec Listed: choose gives list, a mask of bool \(10,\) was expected",
        ),
        (
            Chain((), None, None, Short(), Plain()),
            r"codec Short: read gives float32 \(9,\), float32 \(10,\) was expected",
        ),
        (
            Chain((), None, None, ReadsList(), Plain()),
            r"codec ReadsList: read gives list, float32 \(10,\) was expected",
        ),
        (
            Chain((), None, None, Integers(), Plain()),
            r"codec Integers: read gives int32 \(10,\), float32 \(10,\) was expected",
        ),
        (
            Chain((), None, None, Wide(), Plain()),
            r"codec Wide: read gives float64 \(10,\), float32 \(10,\) was expected",
        ),
        (
            Chain((), None, None, Unwritten(), Plain()),
            r"codec Unwritten: write gives float32 \(10,\), bytes was expected",
        ),
        (Chain((), None, None, Exact(), Texts()), "codec Texts: pack gives str, bytes was expected"),
    ],
    ids=["places", "too few", "weights", "listed", "short", "a list", "other numbers", "wide", "no bytes", "text"],
)
def test_what_a_codec_gives_in_another_form_is_refused_naming_its_method(chain: Chain, said: str) -> None:
    with pytest.raises(HanseError, match=said) as raised:
        sent_and_read(chain)
    assert raised.value.code is ErrorCode.INVALID_INPUT


def sent_and_read(chain: Chain) -> None:
    """A small update by way of a chain."""
    file = BytesIO()
    encode(file, LAYOUT, {"weight": VALUES}, chain, seed=1, with_layout=True)
    decode(np.frombuffer(file.getvalue(), np.uint8), chain, most=10_000)
