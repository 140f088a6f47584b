"""Codecs in a task: none beside masks, which are on the numbers themselves, and no encoded model beside noise."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_datapod.agent.task_config import check_config
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import PrivacyTerms
from hanse_fabric.messages.privacy import Privacy
from unit.datapod.masked_actors import masked_task
from unit.datapod.site_actors import task

UP = {"up": [{"name": "top_k", "k": 1}], "down": []}
DOWN = {"up": [], "down": [{"name": "float16"}], "model_size": 100}
PRIVATE = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="gaussian", noise_multiplier=1.0), rounds=1, round=1, active=3
)


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (masked_task(config={"codec": UP}), "up"),
        (masked_task(config={"codec": DOWN}), "down"),
        (task(config={"codec": DOWN}, privacy=PRIVATE), "down"),
    ],
    ids=["masks up", "masks down", "noise down"],
)
def test_a_codec_that_masks_or_noise_are_not_made_for_is_refused_by_name(made: Any, field: str) -> None:
    with pytest.raises(HanseError, match=f"task.config.codec.{field}.*beside masks or noise") as caught:
        check_config(made)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_site_code_is_refused_beside_dp_sgd_before_anything_is_charged() -> None:
    private = PRIVATE.model_copy(update={"privacy": Privacy(placement="local", mechanism="dp_sgd", epsilon=1.0)})
    with pytest.raises(HanseError, match=r"task\.config\.code.*nothing, beside dp_sgd"):
        check_config(task(config={"code": {"digest": "0" * 64}}, privacy=private))
    check_config(task(config={"code": {"digest": "0" * 64}}, privacy=PRIVATE))
    check_config(task(config={}, privacy=private))


@pytest.mark.parametrize(
    "made",
    [
        task(config={"codec": UP | {"down": DOWN["down"]}}),
        task(config={"codec": UP}, privacy=PRIVATE),
        masked_task(config={"codec": {"up": [], "down": [], "model_size": 100}}),
    ],
    ids=["plain", "noise up", "masks with none"],
)
def test_codecs_are_taken_where_they_belong(made: Any) -> None:
    check_config(made)
