"""Terms by which nothing leaves without masks let studies begin: the list of a cohort's SNPs is about nobody."""

from __future__ import annotations

import pytest

from hanse_datapod.policy.terms import check_terms
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import OpenSchema
from hanse_schemas.terms import ProjectTerms
from unit.datapod.site_actors import task

MASKED = ProjectTerms.model_validate(
    {
        "project": "triage", "version": 1, "data_schema": OpenSchema(),
        "asked": {"owner": "Ward 5", "purpose": "which gene", "masked": True},
    }
)  # fmt: skip


def test_a_study_opens_under_terms_that_want_masks_and_nothing_else_of_it_leaves_without() -> None:
    study = {"kind": TaskKind.STUDY, "workflow": "association_study"}
    check_terms(MASKED, task("open", config={"step": "open"}, **study))
    with pytest.raises(HanseError, match=r"terms\.masked"):
        check_terms(MASKED, task("samples", config={"step": "samples"}, **study))
    with pytest.raises(HanseError, match=r"terms\.masked"):
        check_terms(MASKED, task(config={"step": "open"}))
