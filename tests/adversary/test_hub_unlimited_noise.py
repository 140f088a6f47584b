"""A hub that asks sites without a ceiling of privacy for noise that hides nothing, and by that for preparations that
they would not make without noise: again without one site, of the oldest person alone, of a column that one person has.

A site that requires masks is cautious, and most such sites name no budget. Noise stands in for caution where one is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary import workers
from adversary.ages import AGES, ROWS, TARGET
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from adversary.test_hub_preparations import sums_of
from adversary.works import without
from csv_tables import write_table
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_fabric.messages import HiddenFailure, PrivacyTerms, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_learning.preparation.noisy import NOISY, STEP, noisy_rings
from hanse_learning.preparation.plan import counted, rings
from hanse_privacy.joint import Computation
from hanse_schemas.prepare import rules_of
from hanse_schemas.schema import Column, TabularSchema
from hanse_workflows.joint_sums import plan_of

OLDEST, LACTATE = max(map(max, AGES)), 7.25
"""One person at the target is the oldest of all, and another the only one of whom a lactate was measured."""
ENDS = {"age": (0.0, 120.0), "lactate": (0.0, 20.0)}
SCHEMA = TabularSchema(
    features=tuple(Column(name=name, minimum=low, maximum=high) for name, (low, high) in ENDS.items()),
    target="died", classes=2,
)  # fmt: skip
HARDLY_ANY = PrivacyTerms(
    privacy=Privacy(
        placement="local", mechanism="dp_sgd", noise_multiplier=1e-3, preparation={"noise_multiplier": 1e-3}
    ),
    rounds=1, round=1, active=1,
)  # fmt: skip
"""Noise of a thousandth of a person."""


@pytest.fixture
def wards(attacked: Attacked, tmp_path: Path) -> Any:
    """`attacked` on cautious sites with tables of ages and lactates."""

    def worker(index: int) -> Any:
        rows = ((age, LACTATE if (index, at) == (3, 5) else "", at % 2) for at, age in enumerate(AGES[index]))
        path = write_table(tmp_path / f"{index}.csv", ["age", "lactate", "died"], rows)
        return workers.on(DataSettings(train=path, test=path))

    return lambda **rules: attacked(sites=len(ROWS), worker=worker, schema=SCHEMA, **rules)


def asking_of(column: str, clip: tuple[float, float] | None = None) -> list[dict[str, Any]]:
    """The rules of a preparation that asks of one column, between the schema's ends or the hub's own."""
    found: list[dict[str, Any]] = []
    for name, (low, high) in ENDS.items():
        asked = {} if name == column else {"scale": "none", "missing": "constant", "indicator": False}
        cut = {"clip": list(clip)} if clip and name == column else {}
        found.append({"name": name, "kind": "number", "minimum": low, "maximum": high} | asked | cut)
    return found


async def summed(
    hub: LyingHub, names: list[str], number: int, prepare: list[dict[str, Any]], noise: PrivacyTerms | None = HARDLY_ANY
) -> tuple[dict[str, Any] | None, str]:
    """The sums of these sites by name; or why there are none."""
    needed = noisy_rings(len(ROWS)) if noise else rings(counted(rules_of(prepare)).arrays, len(ROWS))
    plan = plan_of(Computation("prepare", "sums", rings=needed), len(ROWS))
    session, run = f"s{number}", f"run{number:09}"
    asked = {"kind": TaskKind.PREPARE, "plan": plan, "run": run, "round": 0, "privacy": noise}
    results = await hub.ask(*(hub.task(name, session, config={"prepare": prepare}, **asked) for name in names))
    return await sums_of(hub, results, session, run)


def rows_missing_sum(told: dict[str, Any], low: float, high: float) -> tuple[float, float, float]:
    """(rows, missing cells, sum of the others, cut to the ends) of a noisy sum of one column."""
    rows, missing, scaled, _ = (float(number) / STEP for number in told[NOISY])
    return rows, missing, (low + high) / 2 * (rows - missing) + (high - low) / 2 * scaled


async def one_sites_ages(hub: LyingHub) -> tuple[tuple[float, float] | None, str]:
    """(people, mean age) of the target, by two sums of which one lacks it, each with other noise."""
    whole, why = await summed(hub, hub.stage.names, 1, asking_of("age"))
    assert whole is not None, why
    section = HARDLY_ANY.privacy.model_copy(update={"noise_multiplier": 1.1e-3})
    other = HARDLY_ANY.model_copy(update={"privacy": section})
    rest, why = await summed(hub, without(hub, TARGET), 2, asking_of("age"), other)
    if rest is None:
        return None, why
    all_rows, _, all_years = rows_missing_sum(whole, *ENDS["age"])
    rows, _, years = rows_missing_sum(rest, *ENDS["age"])
    return (all_rows - rows, (all_years - years) / (all_rows - rows)), ""


async def test_a_preparation_is_no_other_work_by_noise_that_hides_nothing(wards: Any) -> None:
    async with wards() as hub:
        read, why = await one_sites_ages(hub)
        assert read is None
        assert "1 fewer than the last set's" in why
        # Nor is one without any noise another than one with so little.
        told, why = await summed(hub, without(hub, TARGET), 3, asking_of("age"), None)
        assert told is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_a_preparation_is_no_other_work_by_noise_that_hides_nothing")
async def test_control_where_any_noise_is_trusted_one_sites_people_and_their_mean_age_are_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyPolicy, "has_ceiling", lambda *_: True)
    async with wards() as hub:
        read, why = await one_sites_ages(hub)
        assert read is not None, why
        assert read == pytest.approx((ROWS[3], np.mean(AGES[3])), abs=0.1)


async def oldest_person(hub: LyingHub) -> tuple[float | None, str]:
    """The oldest person's age, by ends between which nobody else lies: all others count as the lower one."""
    low, high = 53.0, 54.0
    told, why = await summed(hub, hub.stage.names, 1, asking_of("age", (low, high)))
    if told is None:
        return None, why
    rows, _, scaled, _ = (float(number) / STEP for number in told[NOISY])
    return low + (high - low) / 2 * (scaled + round(rows)), ""


async def test_nobody_is_alone_between_ends_of_a_hubs_choice_whose_noise_hides_nothing(wards: Any) -> None:
    async with wards() as hub:
        read, why = await oldest_person(hub)
        assert read is None
        assert "asking.protocols" in why
        assert "ends" in why


@pytest.mark.control("test_nobody_is_alone_between_ends_of_a_hubs_choice_whose_noise_hides_nothing")
async def test_control_where_any_noise_is_trusted_with_any_ends_the_oldest_persons_age_is_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrivacyPolicy, "has_ceiling", lambda *_: True)
    async with wards() as hub:
        read, why = await oldest_person(hub)
        assert read is not None, why
        assert read == pytest.approx(OLDEST, abs=0.1)


async def only_lactate(hub: LyingHub) -> tuple[float | None, str]:
    told, why = await summed(hub, hub.stage.names, 1, asking_of("lactate"))
    if told is None:
        return None, why
    rows, missing, lactate = rows_missing_sum(told, *ENDS["lactate"])
    assert round(rows - missing) == 1
    return lactate, ""


async def test_a_column_of_which_one_person_has_a_cell_is_not_summed_with_noise_that_hides_nothing(wards: Any) -> None:
    async with wards() as hub:
        read, why = await only_lactate(hub)
        assert read is None
        assert why == HiddenFailure.UNFIT.text


@pytest.mark.control("test_a_column_of_which_one_person_has_a_cell_is_not_summed_with_noise_that_hides_nothing")
async def test_control_without_the_rule_on_few_that_persons_cell_is_read(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AskingPolicy, "check_group", lambda *_, **__: None)
    async with wards() as hub:
        read, why = await only_lactate(hub)
        assert read is not None, why
        assert read == pytest.approx(LACTATE, abs=0.2)


async def test_an_honest_site_with_a_ceiling_takes_part_with_other_ends_and_without_a_site(wards: Any) -> None:
    async with wards(privacy={"epsilon": 1e9}) as hub:
        for number, names in ((1, hub.stage.names), (2, without(hub, TARGET))):
            told, why = await summed(hub, names, number, asking_of("age", (18.0, 100.0 + number)))
            assert told is not None, why
