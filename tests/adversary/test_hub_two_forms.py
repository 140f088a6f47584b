"""A hub that has a work done again after a site has lost one person, on another form of the same table: raw the one
time, prepared the other. A preparation that changes nothing makes the same numbers: the difference is one person.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adversary.ages import AGES, write_ages
from adversary.lying_hub import LyingHub
from adversary.test_hub_evaluations import OLD, summed
from hanse_datapod.data import tables
from hanse_fabric.messages import HiddenFailure

AS_IT_IS = {"preparation": {"columns": [{"kind": "number", "name": "age", "centre": 0.0, "scale": 1.0}]}}
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "raw, then prepared": ({}, AS_IT_IS), "prepared, then raw": (AS_IT_IS, {})
}  # fmt: skip


def forget_the_first(folder: Path) -> list[list[int]]:
    """Take the target's first person out of its table; gives where that one is counted."""
    write_ages(folder / "3.csv", AGES[3][1:], 1)
    return [[int((0, AGES[3][0] > OLD) == (row, column)) for column in (0, 1)] for row in (0, 1)]


async def one_person(hub: LyingHub, folder: Path, forms: tuple[Any, Any]) -> tuple[bool | None, str]:
    """Whether the difference of two sums of all sites is the person who has gone; or why there is none."""
    before, why = await summed(hub, hub.stage.names, 1, config=forms[0])
    assert before is not None, why
    gone = forget_the_first(folder)
    after, why = await summed(hub, hub.stage.names, 2, config=forms[1])
    return (None, why) if after is None else ((before - after).tolist() == gone, "")


@pytest.mark.parametrize("forms", FORMS)
async def test_a_work_is_not_done_again_on_one_person_fewer_in_another_form_of_the_table(
    wards: Any, tmp_path: Path, forms: str
) -> None:
    async with wards() as hub:
        read, why = await one_person(hub, tmp_path, FORMS[forms])
        assert read is None
        assert HiddenFailure.UNFIT.text in why


@pytest.mark.parametrize("forms", FORMS)
@pytest.mark.control("test_a_work_is_not_done_again_on_one_person_fewer_in_another_form_of_the_table")
async def test_control_where_people_are_told_apart_in_one_form_alone_the_difference_is_one_person(
    wards: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forms: str
) -> None:
    monkeypatch.setattr(tables, "of_numbers_alone", lambda _columns: False)
    async with wards() as hub:
        assert await one_person(hub, tmp_path, FORMS[forms]) == (True, "")
