"""Short runs in all weathers: what the network does, who crashes and when, is drawn from the seed.

A seed that fails is a bug report: `HANSE_SIMULATION_SEEDS=17..18 pytest tests/simulation/test_any_seed.py` repeats it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from simulation.league import League
from simulation.network import Weather
from simulation.played import play

MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "compensator": {"secure_aggregation": {"mode": "compensator"}},
    "pairwise": {"secure_aggregation": {"mode": "pairwise"}},
}
SITES = 4
JOB: dict[str, Any] = {
    "rounds": 3, "model": {"name": "linear"}, "seed": 7, "evaluate": {"every": 3},
    "participants": {"minimum": SITES, "deadline": 3600.0, "patience": 3600.0},
}  # fmt: skip
FIRST, _, END = os.environ.get("HANSE_SIMULATION_SEEDS", "0..2").partition("..")
SEEDS = range(int(FIRST), int(END))


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """The digest of each mode's model where nothing happens."""
    return {
        mode: play(tmp_path_factory.mktemp(mode), JOB | more, sites=SITES).record.model_digest
        for mode, more in MODES.items()
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_ends_in_the_same_bits_whatever_happens(
    digests: dict[str, str | None], tmp_path: Path, mode: str, seed: int
) -> None:
    chance = random.Random(seed)
    weather = Weather(latency_s=chance.choice([0.0, 0.02, 0.1, 0.5]), lost=chance.choice([0.0, 0.005, 0.03]))

    async def trouble(made: League) -> None:
        for _ in range(chance.randrange(8)):
            await made.clock.sleep(chance.expovariate(1 / 10))
            name = chance.choice(sorted(made.processes))
            if chance.random() < 0.5:
                await made.restart(name, after=chance.expovariate(1 / 5))
            else:
                made.processes[name].cut(chance.expovariate(1 / 20))

    played = play(tmp_path, JOB | MODES[mode], sites=SITES, coordinators=2, seed=seed, weather=weather, trouble=trouble)
    assert played.record.model_digest == digests[mode]


def test_a_coordinator_that_was_cut_off_while_another_took_its_run_stops_writing(
    digests: dict[str, str | None], tmp_path: Path
) -> None:
    """It works on, for nobody can tell it; what it wrote is refused by the journal when it is back."""
    back = 0.0

    async def cut_the_one_at_work(made: League) -> None:
        nonlocal back
        await made.clock.sleep(8)
        [taking] = made.audits("run.take")
        made.processes[taking.actor.rpartition("/")[2]].cut(25)
        back = made.clock.monotonic() + 25

    played = play(tmp_path, JOB, sites=SITES, coordinators=2, trouble=cut_the_one_at_work)
    assert played.takings > 1
    assert played.seconds > back > 0, "it was back in the middle of the run"
    assert played.record.model_digest == digests["plain"]
