"""A hub that has a model evaluated again after a site has lost one of its test people, and many of those it trains on.
In all they are enough for the same work to be done again; but the sums are of test people alone, and tell of the one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adversary import workers
from adversary.ages import AGES, ROWS, SCHEMA, write_ages
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from adversary.test_hub_evaluations import OLD, summed
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.home import work_people
from hanse_fabric.messages import HiddenFailure

TRAINED = [30.0 + at / 4 for at in range(40)]
"""Ages of those whom each site trains on."""
MANY = 12


def wards(attacked: Attacked, folder: Path) -> Any:
    def worker(index: int) -> Any:
        train = write_ages(folder / f"train-{index}.csv", TRAINED)
        test = write_ages(folder / f"test-{index}.csv", AGES[index])
        return workers.on(DataSettings(train=train, test=test))

    return attacked(sites=len(ROWS), worker=worker, schema=SCHEMA)


async def one_person(hub: LyingHub, folder: Path) -> tuple[bool | None, str]:
    """Whether the difference of two sums of all sites is the test person who has gone; or why there is none."""
    before, why = await summed(hub, hub.stage.names, 1)
    assert before is not None, why
    write_ages(folder / "train-3.csv", TRAINED[MANY:], MANY)
    write_ages(folder / "test-3.csv", AGES[3][1:], 1)
    after, why = await summed(hub, hub.stage.names, 2)
    if after is None:
        return None, why
    gone = [[int((row, column) == (0, AGES[3][0] > OLD)) for column in (0, 1)] for row in (0, 1)]
    return (before - after).tolist() == gone, ""


async def test_a_work_is_not_done_again_on_one_test_person_fewer_where_many_others_have_gone(
    attacked: Attacked, tmp_path: Path
) -> None:
    async with wards(attacked, tmp_path) as hub:
        read, why = await one_person(hub, tmp_path)
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.control("test_a_work_is_not_done_again_on_one_test_person_fewer_where_many_others_have_gone")
async def test_control_where_all_people_are_counted_together_the_difference_is_one_person(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_people, "parts_of", lambda people: [people[: len(people) // 3]])
    async with wards(attacked, tmp_path) as hub:
        assert await one_person(hub, tmp_path) == (True, "")
