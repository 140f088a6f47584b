"""A key that nobody knows is refused with the one that was probably meant, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hanse_datapod.policy.site_policy import load_policy
from hanse_fabric.errors import HanseError
from hanse_learning.config import check_train
from hanse_learning.server.config import check_strategy
from hanse_schemas.job import check_job

BODY = {"rounds": 3, "model": {"name": "mlp"}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"roundz": 3}, "roundz: Extra inputs are not permitted, did you mean rounds? (given 3)"),
        (
            {"participants": {"minimun": 3}},
            "minimun: Extra inputs are not permitted, did you mean minimum?",
        ),
        ({"secure_aggregation": {"mod": "pairwise"}}, "mod: Extra inputs are not permitted, did you mean mode?"),
        ({"privacy": {"epsilo": 1.0}}, "did you mean epsilon?"),
        ({"zzz": 1}, "zzz: Extra inputs are not permitted (given 1)"),
    ],
)
def test_a_job_s_typo_names_the_nearest_key(given: dict[str, object], said: str) -> None:
    with pytest.raises(HanseError) as caught:
        check_job(BODY | given)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_sections_that_are_checked_apart_name_it_too(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match=r"did you mean batch_size\?"):
        check_train({"batchsize": 32})
    with pytest.raises(HanseError, match=r"did you mean lr\?"):
        check_train({"optimizer": {"name": "sgd", "lrr": 0.1}})
    with pytest.raises(HanseError, match=r"did you mean reduction\?"):
        check_strategy({"reductions": {"name": "median"}})
    (tmp_path / "policy.yaml").write_text("masking: {require: true}\n")
    with pytest.raises(HanseError, match=r"did you mean required\?"):
        load_policy(tmp_path / "policy.yaml")
