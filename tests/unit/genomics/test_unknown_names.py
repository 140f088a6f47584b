"""Groups and tests of studies that nobody knows are errors: never everybody, never another test's words."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics import groups
from hanse_genomics.results.drawn import Drawn
from hanse_genomics.site.samples import members
from hanse_genomics.site.step import SiteStudy
from hanse_schemas.study import Study


def site() -> SiteStudy:
    """Four samples: a case, a control, one of neither, one who is no founder."""
    cohort = SimpleNamespace(
        samples=4, phenotype=np.array([1.0, 0.0, np.nan, 1.0]), founder=np.array([True, True, True, False]),
        sex=np.array([1, 2, 0, 1]), covariates=np.zeros((4, 0)),
    )  # fmt: skip
    return SiteStudy(cast("Any", cohort), Study(test="chi_square"), Path("unused"))


def test_every_group_is_some_of_its_status_and_one_that_is_not_known_is_not_everybody() -> None:
    assert members(site(), "all").sum() == 4
    for group in groups.ALL:
        assert (members(site(), group) <= members(site(), group.partition("/")[0])).all()
    for unknown in ("hearsay", "founder_hearsay", "all/hearsay", "", "complete_founder"):
        with pytest.raises(HanseError, match="groups: ") as raised:
            members(site(), unknown)
        assert raised.value.code is ErrorCode.INVALID_INPUT


def test_every_ploidy_says_which_sexes_are_counted_and_an_unknown_one_counts_nobody() -> None:
    sizes = dict.fromkeys(groups.ALL, 1)
    study = Study(test="chi_square")
    told = {ploidy: groups.needed(study, sizes, ploidy) for ploidy in get_args(groups.Ploidy)}
    assert told["mt"] == told["diploid"] != told["y"] != told["x"]
    with pytest.raises(AssertionError, match="hearsay"):
        groups.needed(study, sizes, cast("Any", "hearsay"))


def test_results_of_every_test_say_what_their_effect_is_and_those_of_another_are_refused() -> None:
    arrays = {name: np.zeros(1) for name in ("chromosome", "position", "name", "minor", "log10_p")}
    tests = get_args(Study.model_fields["test"].annotation)
    told = {test: Drawn(arrays, {"study": {"test": test}}).effect for test in tests}
    assert told == {"chi_square": "odds ratio", "trend": "", "linear": "beta", "logistic": "odds ratio"}
    with pytest.raises(HanseError, match=r"study\.test: .*hearsay"):
        Drawn(arrays, {"study": {"test": "hearsay"}})
