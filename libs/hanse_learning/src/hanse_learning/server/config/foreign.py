"""Which plug-ins of other packages a job names, with the digests of their code as this process has it installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hanse_fabric.plugins import ALGORITHMS, CODECS, SERVER_OPTIMIZERS, STRATEGIES, Plugin, find
from hanse_learning.codecs.config import check_chain
from hanse_learning.config import check_train
from hanse_learning.server.config.strategy import check_strategy
from hanse_schemas.job import Job


def plugins_of(job: Job) -> dict[str, str]:
    """Digests by `strategy NAME`, `server-optimizer NAME`, `algorithm NAME` and `codec NAME`;
    empty where all are Hanse's own.

    Raises:
        HanseError: INVALID_INPUT for sections that were not checked; NOT_FOUND where a plug-in's files are gone.
    """
    return {each.title: each.digest() for each in named_plugins(job) if not each.built_in}


def named_plugins(job: Job) -> tuple[Plugin, ...]:
    """What the strategy, the codecs and the algorithm of a job are registered as, Hanse's own among them.

    Raises:
        HanseError: INVALID_INPUT for sections that were not checked.
    """
    codecs = () if job.codec is None else (*job.codec.up, *job.codec.down)
    named = [*strategy_plugins(job.strategy), *(find(CODECS, str(each.get("name"))) for each in codecs)]
    if job.code is None:
        named.append(find(ALGORITHMS, check_train(job.train).algorithm.name))
    return tuple(named)


def strategy_plugins(strategy: Mapping[str, Any]) -> tuple[Plugin, Plugin]:
    """What the reduction and the server optimizer of a job's `strategy` section are registered as."""
    checked = check_strategy(strategy)
    return find(STRATEGIES, checked.reduction.name), find(SERVER_OPTIMIZERS, checked.optimizer.name)


def codec_plugins(chain: Sequence[Mapping[str, Any]]) -> tuple[Plugin, ...]:
    """What the codecs of a chain are registered as."""
    return tuple(find(CODECS, config.name) for config in check_chain(chain))


def codec_digests(chain: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Of those that are not Hanse's own, by name; None where all are."""
    return {plugin.name: plugin.digest() for plugin in codec_plugins(chain) if not plugin.built_in} or None


def strategy_digests(strategy: Mapping[str, Any]) -> dict[str, str | None]:
    """Of these two, under the names that a reduction job has for them; None where it is Hanse's own."""
    digests = [None if plugin.built_in else plugin.digest() for plugin in strategy_plugins(strategy)]
    return dict(zip(("strategy_digest", "optimizer_digest"), digests, strict=True))
