"""A hub that keeps to itself how far a site's privacy ledger had come, and somebody at the site who lays it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from adversary.conftest import Attacked
from adversary.test_owner import BUDGET, PRIVATE, charged_round, spend_again
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.privacy.books import restore_ledger
from hanse_fabric.messages import Outcome

LAID_BACK = pytest.mark.parametrize("back", [0, 1])


@LAID_BACK
async def test_a_ledger_that_is_laid_back_alone_restores_no_budget_though_the_hub_forgets(
    attacked: Attacked, tmp_path: Path, back: int
) -> None:
    async with attacked(**(PRIVATE | {"privacy": BUDGET})) as hub:
        answer = await spend_again(hub, tmp_path, back=back, tell=False)
        assert "ledger is older than what it has signed before" in answer.reason
        site = hub.stage.sites["site-0"]
        await site.stop()
        restore_ledger(site.home, site.policy.privacy, "the disk broke", (hub.stage.project, 1.0))
        await site.start()
        assert "of 1.2 is spent" in (await charged_round(hub, 5, None)).reason


@pytest.mark.control("test_a_ledger_that_is_laid_back_alone_restores_no_budget_though_the_hub_forgets")
@LAID_BACK
async def test_control_a_site_that_does_not_remember_its_own_answers_spends_the_budget_twice(
    attacked: Attacked, tmp_path: Path, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskJournal, "charged", None)
    async with attacked(**(PRIVATE | {"privacy": BUDGET})) as hub:
        assert (await spend_again(hub, tmp_path, back=back, tell=False)).outcome is Outcome.DONE
