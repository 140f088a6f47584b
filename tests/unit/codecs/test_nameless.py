"""A codec without a name is none, and stands for no other."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.codecs.config import check_chain


@pytest.mark.parametrize("section", [{}, {"fraction": 0.1}])
@pytest.mark.parametrize("field", ["codec.up", "codec.down"])
def test_a_codec_without_a_name_is_refused_with_its_place_and_the_known_names(
    field: str, section: dict[str, Any]
) -> None:
    expected = rf"{field}\[1\].name: None is not the name of a codec: bfloat16, .*zstd"
    with pytest.raises(HanseError, match=expected) as refused:
        check_chain([{"name": "top_k", "k": 1}, section], field)
    assert refused.value.code is ErrorCode.INVALID_INPUT
