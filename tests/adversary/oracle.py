"""Attack 6: whether a task failed is an exact answer to a question that a hub puts by the model that it sends.

The site trains a line through its people's values. The loss of a model with weight w is finite in float32 as long as
w^2 times the sum of their squares is: so one task tells whether that sum is above a bound of the hub's.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from adversary import workers
from adversary.lying_hub import LyingHub
from hanse_datapod.data.settings import DataSettings
from hanse_fabric.messages import Outcome, PrivacyTerms, Result
from hanse_fabric.messages.privacy import Privacy

PEOPLE = np.array([[12.0], [83.4375], [31.5], [7.25]])
SECRET = float(np.linalg.norm(PEOPLE))
LARGEST = math.sqrt(float(np.finfo(np.float32).max))
QUESTIONS = 12
TERMS = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="gaussian", clip=1.0, noise_multiplier=50.0),
    rounds=1,
    round=1,
    active=1,
)


def site_with_secret(folder: Path) -> Any:
    """A worker with the true trainer, on a few people."""
    path = folder / "people.npz"
    np.savez(path, x=PEOPLE, y=np.zeros(4))
    return workers.on(DataSettings(train=path, test_fraction=0))


async def bracket(hub: LyingHub, **task: Any) -> tuple[float, float, list[Result]]:
    """What the answers tell of the secret, which is known to be between 1 and 1,000."""
    low, high, results = 1.0, 1000.0, []
    for number in range(QUESTIONS):
        asked = math.sqrt(low * high)
        model = {"output.weight": np.array([[LARGEST / asked]]), "output.bias": np.zeros(1)}
        config = {"model": {"name": "linear"}, "train": {"steps": 1, "optimizer": {"name": "sgd", "lr": 1e-30}}}
        answer = await hub.ask(hub.task("site-0", f"r{number + 1}-train", model=model, config=config, **task))
        results.append(answer["site-0"])
        if results[-1].outcome is Outcome.DONE:
            high = asked
        else:
            low = asked
    return low, high, results
