"""What the SDK sends of a study's job is what its owner wrote."""

from __future__ import annotations

import pytest

from hanse.jobs import read_job
from hanse_schemas.job import check_job


@pytest.mark.parametrize("cohorts", [2, 3, 5])
def test_a_studys_number_of_cohorts_is_sent_even_where_it_equals_trainings_default(cohorts: int) -> None:
    job = {
        "workflow": "association_study",
        "study": {"test": "chi_square", "few_cohorts": True},
        "participants": {"minimum": cohorts},
    }
    assert check_job(read_job(job)) == check_job(job)
