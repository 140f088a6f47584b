"""`stale: last` of Henkel (2021) is no setting of any job, and a job that asks for it hears why."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.codecs.config import check_job_codec
from hanse_schemas.job import check_job

ONE = {"name": "percentile", "p": 90}


@pytest.mark.parametrize(
    "codec", [{"up": [ONE | {"stale": "last"}]}, {"up": [ONE], "stale": "last"}], ids=["of a codec", "of the section"]
)
def test_former_values_in_place_of_what_is_left_out_are_refused_with_the_reason(codec: dict[str, Any]) -> None:
    with pytest.raises(HanseError, match=r"stale: 'last' is not offered: .* keep its newest update") as caught:
        check_job_codec(check_job({"rounds": 1, "model": {"name": "mlp"}, "codec": codec}))
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "error_feedback" in str(caught.value)
    check_job_codec(check_job({"rounds": 1, "model": {"name": "mlp"}, "codec": {"up": [ONE], "error_feedback": True}}))
