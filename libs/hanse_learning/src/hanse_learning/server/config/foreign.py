"""Which plug-ins of other packages a job names, with the digests of their code as this process has it installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_fabric.plugins import ALGORITHMS, STRATEGIES, find
from hanse_learning.config import check_train
from hanse_learning.server.config.strategy import check_strategy
from hanse_schemas.job import Job


def plugins_of(job: Job) -> dict[str, str]:
    """Digests by `strategy NAME` and `algorithm NAME`; empty where both are Hanse's own.

    Raises:
        HanseError: INVALID_INPUT for sections that were not checked; NOT_FOUND where a plug-in's files are gone.
    """
    named = [find(STRATEGIES, check_strategy(job.strategy).reduction.name)]
    if job.code is None:
        named.append(find(ALGORITHMS, check_train(job.train).algorithm.name))
    return {each.title: each.digest() for each in named if not each.built_in}


def strategy_digest(strategy: Mapping[str, Any]) -> str | None:
    """Of the plug-in that a job's `strategy` section names; None where it is Hanse's own."""
    plugin = find(STRATEGIES, check_strategy(strategy).reduction.name)
    return None if plugin.built_in else plugin.digest()
