"""Checks of a job's strategy against its other sections, when it is submitted."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config import FedDynConfig as SitesFedDyn
from hanse_learning.config import FedLtnConfig, SgdConfig, check_train
from hanse_learning.config.checks import declared_state
from hanse_learning.server.config.foreign import named_plugins
from hanse_learning.server.config.optimizers import FedDynConfig, LookAheadConfig, NoOptimizerConfig
from hanse_learning.server.config.reductions import OverlapMeanConfig
from hanse_learning.server.config.strategy import StrategyConfig, check_strategy, state_names
from hanse_schemas.job import Job


def check_job_strategy(job: Job) -> StrategyConfig:
    """Validate a job's `strategy` section, also against how many take part, and what they do.

    Raises:
        HanseError: INVALID_INPUT naming the field, its value and what was expected.
    """
    config = check_strategy(job.strategy)
    if any(not plugin.built_in for plugin in named_plugins(job)):
        config.reduction.build()  # whose errors are better told now than by an aggregator
        config.optimizer.build()
        if job.code is None:
            check_train(job.train).algorithm.require_whole()
    _check_frozen(job, config)
    check_participants(config, job.participants.minimum, "participants.minimum")
    if job.code is not None:
        if needed := config.reduction.needs():
            raise _refused(config, f"site code, which does not tell the {needed[0]} that it needs")
        if isinstance(config.optimizer, FedDynConfig):
            raise invalid("strategy.optimizer.name", "feddyn", "another optimizer: site code has no algorithm feddyn")
        return config
    _check_algorithm(job, config)
    return config


def check_participants(config: StrategyConfig, count: int, field: str) -> None:
    """Check that a strategy can be applied to the updates of `count` participants, a number found in `field`.

    Raises:
        HanseError: INVALID_INPUT.
    """
    reduction = config.reduction
    if count < reduction.least():
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"strategy.reduction: {reduction.model_dump(mode='json', exclude_none=True)} with {field} {count}: "
            f"{reduction.name} takes {reduction.least()} updates at least",
            hint=f"raise participants.minimum to {reduction.least()}, or ask less of it",
        )


def _check_frozen(job: Job, config: StrategyConfig) -> None:
    """Parameters that are frozen after some rounds would go on to move by what an optimizer remembers of these."""
    if not state_names(config):
        return
    for number, rule in enumerate(declared_state(job)):
        if rule.keep == "frozen" and rule.from_round > 1 and rule.layers != "statistics":
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"model.state[{number}].from_round: {rule.from_round} with strategy.optimizer.name: "
                f"{config.optimizer.name}, whose momentum would still move what is frozen",
                hint="freeze from the first round on, or use strategy.optimizer {name: none}",
            )


def _check_algorithm(job: Job, config: StrategyConfig) -> None:
    train = check_train(job.train)
    algorithm = train.algorithm
    name = algorithm.name
    server = config.optimizer
    if isinstance(server, FedDynConfig) != (name == "feddyn"):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"train.algorithm.name: {name} with strategy.optimizer.name: {server.name}; feddyn has two halves",
            hint="give both: train.algorithm {name: feddyn, alpha: a}, strategy.optimizer {name: feddyn, alpha: a}",
        )
    if isinstance(server, FedDynConfig) and isinstance(algorithm, SitesFedDyn) and server.alpha != algorithm.alpha:
        raise invalid(
            "strategy.optimizer.alpha",
            server.alpha,
            f"that of train.algorithm, {algorithm.alpha}",
            hint="the two halves of feddyn have one alpha",
        )
    _check_jump_start(config, isinstance(algorithm, FedLtnConfig) and algorithm.jump_start is not None)
    if job.rounds < algorithm.shared_from():
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"rounds: {job.rounds} with train.algorithm.jump_start: its round ends in one site's own model, which is "
            "never published, so the run would end with none",
            hint=f"ask for {algorithm.shared_from()} rounds or more, or leave jump_start out in all three places",
        )
    if algorithm.needs_mean and config.reduction.name != "weighted_mean":
        raise _refused(config, f"algorithm {name}, whose server takes the mean")
    if job.privacy is not None and (needed := config.reduction.needs()):
        raise _refused(config, f"privacy: the {needed[0]} that it needs of each site has no noise")
    # Of dp_sgd they are made of what has its noise; which of them may be, the rules of privacy know.
    noisy = job.privacy is None or (name == "scaffold" and job.privacy.mechanism == "dp_sgd")
    if algorithm.extras and not (noisy and job.secure_aggregation is None):
        raise invalid(
            "train.algorithm.name", name, "an algorithm that sends nothing beside the update",
            hint=f"{', '.join(algorithm.extras)} would have neither masks nor noise",
        )  # fmt: skip
    if "normalizer" in config.reduction.needs():
        if not algorithm.normalized:
            raise _refused(config, f"algorithm {name}: the work in its updates is not known by a number")
        if not isinstance(train.optimizer, SgdConfig):
            raise _refused(config, f"train.optimizer {train.optimizer.name}, whose steps are no sums of gradients")


def _check_jump_start(config: StrategyConfig, jumps: bool) -> None:
    """A jump-start is made at the sites, chosen by the reduction and taken as it is by the optimizer."""
    reduction, server = config.reduction, config.optimizer
    chooses = isinstance(reduction, OverlapMeanConfig) and reduction.jump_start
    plain = jumps and isinstance(server, NoOptimizerConfig)
    takes = server.jump_start if isinstance(server, LookAheadConfig) else plain
    if not jumps == chooses == takes:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"train.algorithm.jump_start: {'given' if jumps else 'none'} with strategy.reduction {reduction.name} "
            f"{'that chooses' if chooses else 'that does not choose'} the best site, and strategy.optimizer "
            f"{server.name} {'that takes' if takes else 'that does not take'} its model as it is",
            hint="give all: train.algorithm {name: fedltn, jump_start: {rounds: n}}, strategy {reduction: {name: "
            "overlap_mean, jump_start: true}, optimizer: {name: look_ahead, jump_start: true}}",
        )


def _refused(config: StrategyConfig, with_what: str) -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT,
        f"strategy.reduction.name: {config.reduction.name} with {with_what}",
        hint="use another reduction, such as weighted_mean",
    )
