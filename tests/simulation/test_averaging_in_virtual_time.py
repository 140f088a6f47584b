"""Six rounds of averaging by four sites, with the true services, in virtual time: the same bits in any weather."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulation.league import League
from simulation.network import Weather
from simulation.played import Played, play
from simulation.trainer import TRUE

SITES = 4
JOB = {
    "rounds": 6, "model": {"name": "linear"}, "seed": 7, "evaluate": {"every": 3},
    "participants": {"minimum": SITES, "deadline": 600.0, "patience": 600.0},
}  # fmt: skip
MASKED = {"secure_aggregation": {"mode": "compensator"}}


CYCLIC = {"workflow": "cyclic_weight_transfer", "rounds": 4}
VARIANTS: dict[str, dict[str, Any]] = {"plain": {}, "masked": MASKED, "cyclic": CYCLIC}


@pytest.fixture(scope="module", params=VARIANTS)
def calm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Played:
    """The run in good weather, without trouble."""
    return play(tmp_path_factory.mktemp("calm"), JOB | VARIANTS[request.param], sites=SITES, weather=Weather())


def test_its_rounds_find_the_weights_that_the_data_were_made_from(calm: Played) -> None:
    assert (calm.record.round, calm.lost, calm.takings) == (calm.job["rounds"], 0, 1)
    np.testing.assert_allclose(calm.model["weight"], TRUE, atol=0.02)


def test_the_same_seed_is_the_same_run_to_the_order_of_its_messages(calm: Played, tmp_path: Path) -> None:
    again = play(tmp_path, calm.job, sites=SITES, weather=Weather())
    assert again.seconds == calm.seconds
    assert again.messages == calm.messages
    assert again.record.model_digest == calm.record.model_digest


# Averaging, masked too, has the weathers of `test_any_seed`.
@pytest.mark.parametrize("calm", ["cyclic"], indirect=True)
def test_slow_links_that_lose_messages_cost_time_and_change_no_bit(calm: Played, tmp_path: Path) -> None:
    stormy = play(tmp_path, calm.job, sites=SITES, seed=1, weather=Weather(latency_s=0.5, lost=0.02))
    assert stormy.lost > 10
    assert stormy.seconds > calm.seconds
    assert stormy.record.model_digest == calm.record.model_digest


def test_crashes_of_every_process_in_the_middle_of_rounds_change_no_bit(calm: Played, tmp_path: Path) -> None:
    async def crash_all(made: League) -> None:
        chance = np.random.default_rng(2)
        names = ["coordinator-0", "aggregator-0", "compensator", "aggregator-1", "registry", "site-0", "coordinator-0"]
        for name in names:
            await made.clock.sleep(chance.uniform(1, 5))
            await made.restart(name, after=chance.uniform(0.1, 3))

    hit = play(tmp_path, calm.job, sites=SITES, seed=2, trouble=crash_all)
    assert hit.takings == 3
    assert hit.record.model_digest == calm.record.model_digest


def test_another_seed_of_the_job_gives_another_model(calm: Played, tmp_path: Path) -> None:
    """The control: the digest tells models apart."""
    other = play(tmp_path, calm.job | {"seed": 8, "rounds": 1}, sites=SITES)
    assert other.record.model_digest != calm.record.model_digest
