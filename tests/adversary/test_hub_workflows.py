"""A hub that calls training a study: sites that take part in studies of two cohorts accept sums of two there. Of such
a sum each knows its own part, and so the other's; a site lets sums of training be of three at least, whoever is asked.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.stage import Array
from adversary.works import TARGET, is_of, summed
from hanse_compensator import service
from hanse_compensator.members import SetLimits
from hanse_datapod.policy import site_policy

OTHER = "site-1"
OF_TWO: dict[str, Any] = {
    "sites": 2, "workflows": ["federated_averaging", "association_study"], "masking": {"minimum": 2},
    "studies": {"minimum_cohorts": 2},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _a_compensator_for_studies_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SetLimits", partial(SetLimits, minimum=2))


async def read_by_the_other(hub: LyingHub) -> tuple[Array | None, str]:
    """What is left of the sum of two without the part of the one who tells the hub its own."""
    total, why = await summed(hub, hub.stage.names, "s0", workflow="association_study", minimum=2)
    return (None, why) if total is None else (total - hub.stage.sites[OTHER].update(MODEL), "")


async def test_training_that_is_called_a_study_is_not_summed_over_two(attacked: Attacked) -> None:
    async with attacked(**OF_TWO) as hub:
        read, why = await read_by_the_other(hub)
        assert read is None
        assert "workflows" in why


@pytest.mark.control("test_training_that_is_called_a_study_is_not_summed_over_two")
async def test_control_where_a_workflow_may_ask_for_any_kind_of_work_each_of_two_reads_the_other(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_policy, "check_kind", lambda _: None)
    async with attacked(**OF_TWO) as hub:
        read, why = await read_by_the_other(hub)
        assert is_of(hub, read, TARGET), why
