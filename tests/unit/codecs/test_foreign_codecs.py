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
    ids=["places", "other numbers", "wide", "no bytes", "text"],
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
