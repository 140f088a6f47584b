"""The noise that the job wants in a round: of the sites, or of the hub in the mean of plain updates."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import Any

from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.correlated.matrix import round_name
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.noise.aggregate import least_answers
from hanse_workflows.ask import Ask
from hanse_workflows.quorum import Quorum
from hanse_workflows.round_state import RoundState
from hanse_workflows.verbs import Verbs

_SEED_BYTES = 32


async def correlated_seed(run: Verbs) -> str | None:
    """The seed of all rounds' noise, recorded once, where the hub draws it, correlated from round to round; or None."""
    privacy = run.job.privacy
    if privacy is None or privacy.mechanism != "dp_ftrl" or privacy.placement != "central":
        return None
    drawn = await run.once("noise", {"noise": privacy}, partial(_drawn, run))
    return str(drawn["seed"])


async def central_strategy(run: Verbs, step: str, ask: Ask, state: RoundState) -> dict[str, Any] | None:
    """The job's strategy with `private_mean` for its reduction; None where the job has no central privacy.

    The seed of the noise is recorded under `step` before the reduction is asked for, so that a reduction that is done
    again after a crash has the same noise, and its sum is released once.
    """
    privacy = run.job.privacy
    if privacy is None or privacy.placement != "central":
        return None

    seed = state.seed
    if seed is None:
        seed = (await run.once(step, {"noise": privacy, "round": ask.round}, partial(_drawn, run)))["seed"]
    terms = _terms(run, privacy, ask)
    reduction: dict[str, Any] = {
        "name": "private_mean",
        "terms": terms.model_dump(mode="json"),
        "seed": base64.b64encode(bytes.fromhex(seed)).decode(),
        "clip": state.clip,
    }
    if terms.correlation is not None:
        reduction["before"] = [round_name(number, names) for number, names in enumerate(state.reduced, 1)]
    return {**run.job.strategy, "reduction": reduction}


async def _drawn(run: Verbs) -> dict[str, Any]:
    return {"seed": run.secret(_SEED_BYTES).hex()}


def _terms(run: Verbs, privacy: Privacy, ask: Ask, attempt: int = 1) -> PrivacyTerms:
    return PrivacyTerms(
        privacy=privacy, rounds=run.job.rounds, round=ask.round, active=len(ask.to), attempt=attempt,
        correlation=matrix_of(privacy, run.job.rounds), members=ask.to if ask.training else (), training=ask.training,
    )  # fmt: skip


def with_noise(run: Verbs, ask: Ask, attempt: int) -> Ask:
    """The same, with the noise that the job wants, and as many answers as it takes to have that noise in their sum."""
    privacy = run.job.privacy
    charged = {TaskKind.TRAIN} | ({TaskKind.EVALUATE} if privacy is not None and privacy.metrics is not None else set())
    if privacy is None or ask.kind not in charged:
        return ask
    terms = _terms(run, privacy, ask, attempt)
    if ask.kind is TaskKind.EVALUATE:
        return replace(ask, privacy=terms)  # each site's numbers have noise of their own
    quorum = Quorum(len(ask.to), ask.needed, noise=least_answers(privacy, len(ask.to)))
    return replace(ask, privacy=terms, needed=quorum.needed, enough=ask.enough or quorum.enough)
