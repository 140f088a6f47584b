"""Short runs in all weathers: what the network does, who crashes and when, is drawn from the seed.

A seed that fails is a bug report: `HANSE_SIMULATION_SEEDS=17..18 pytest tests/simulation/test_any_seed.py` repeats it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from simulation.league import League, play
from simulation.network import Weather

MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "compensator": {"secure_aggregation": {"mode": "compensator"}},
    "pairwise": {"secure_aggregation": {"mode": "pairwise"}},
}
SITES = 4
JOB: dict[str, Any] = {
    "rounds": 4, "model": {"name": "linear"}, "seed": 7,
    "participants": {"minimum": SITES, "deadline": 3600.0, "patience": 3600.0},
}  # fmt: skip
FIRST, _, END = os.environ.get("HANSE_SIMULATION_SEEDS", "0..3").partition("..")
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
            await made.restart(chance.choice(sorted(made.processes)), after=chance.expovariate(1 / 5))

    played = play(tmp_path, JOB | MODES[mode], sites=SITES, seed=seed, weather=weather, trouble=trouble)
    assert played.record.model_digest == digests[mode]
