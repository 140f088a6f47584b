"""Noise that the hub adds to the mean of plain updates: the strategy of such a round."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from hanse_coordinator.workflow.context import Ask, RunContext
from hanse_fabric.messages import PrivacyTerms

_SEED_BYTES = 32


async def central_strategy(run: RunContext, ask: Ask, clip: float | None) -> dict[str, Any] | None:
    """The job's strategy with `private_mean` for its reduction; None where the job has no central privacy.

    The seed of the noise is journalled before the reduction is asked for, so that a reduction that is done again after
    a crash has the same noise, and its sum is released once.
    """
    privacy = run.job.privacy
    if privacy is None or privacy.placement != "central":
        return None

    async def draw() -> dict[str, Any]:
        return {"seed": secrets.token_hex(_SEED_BYTES)}

    drawn = await run.decide(f"r{ask.round}-noise", draw)
    terms = PrivacyTerms(privacy=privacy, rounds=run.job.rounds, round=ask.round, active=len(ask.to))
    reduction = {
        "name": "private_mean",
        "terms": terms.model_dump(mode="json"),
        "seed": base64.b64encode(bytes.fromhex(drawn["seed"])).decode(),
        "clip": clip,
    }
    return {**run.job.strategy, "reduction": reduction}
