"""Noise that the hub adds to the mean of plain updates: the strategy of such a round."""

from __future__ import annotations

import base64
from typing import Any

from hanse_fabric.messages import PrivacyTerms
from hanse_workflows.ask import Ask
from hanse_workflows.verbs import Verbs

_SEED_BYTES = 32


async def central_strategy(run: Verbs, step: str, ask: Ask, clip: float | None) -> dict[str, Any] | None:
    """The job's strategy with `private_mean` for its reduction; None where the job has no central privacy.

    The seed of the noise is recorded under `step` before the reduction is asked for, so that a reduction that is done
    again after a crash has the same noise, and its sum is released once.
    """
    privacy = run.job.privacy
    if privacy is None or privacy.placement != "central":
        return None

    async def draw() -> dict[str, Any]:
        return {"seed": run.secret(_SEED_BYTES).hex()}

    drawn = await run.once(step, {"noise": privacy, "round": ask.round}, draw)
    terms = PrivacyTerms(privacy=privacy, rounds=run.job.rounds, round=ask.round, active=len(ask.to))
    reduction = {
        "name": "private_mean",
        "terms": terms.model_dump(mode="json"),
        "seed": base64.b64encode(bytes.fromhex(drawn["seed"])).decode(),
        "clip": clip,
    }
    return {**run.job.strategy, "reduction": reduction}
