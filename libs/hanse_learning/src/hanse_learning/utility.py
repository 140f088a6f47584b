"""Whether a job preserves utility: federated training that equals full-batch training on the pooled data.

Nasirigerdeh, Rueckert and Kaissis (2023), Proposition 2.1: parameters are those of centralized training in every
iteration if model and loss treat examples independently and deterministically, the optimizer is linear in the
gradients, all sites take part with one local step over all of their examples, and the server takes the mean weighted by
examples. With one mini-batch of the same size at sites of equal size it is mini-batch training on the pooled data. Each
component is judged by itself, with the reason.

Loads neither numpy nor torch: the hub refuses what does not hold when the job is submitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.codecs.config import check_chain
from hanse_learning.config import (
    ALL_EXAMPLES,
    AlexnetConfig,
    AnyModel,
    FedTanConfig,
    MlpConfig,
    Normalized,
    SgdConfig,
    TrainConfig,
    check_model,
    check_train,
    has_batch_statistics,
)
from hanse_learning.server.config import (
    AdaptiveConfig,
    FedDynConfig,
    NoOptimizerConfig,
    StrategyConfig,
    WeightedMeanConfig,
    check_strategy,
)
from hanse_learning.server.config import SgdConfig as ServerSgd
from hanse_schemas.job import Codec, Job


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one component. `ok` is whether it preserves utility."""

    component: str
    value: str
    ok: bool
    reason: str


_STATE_REASONS = {
    "local": "entries that are not shared differ from pooled ones",
    "frozen": "entries that do not change would, if all were trained on the pooled data",
}


def check_utility(job: Job) -> tuple[Finding, ...]:
    """The findings of a job, one per component of training that the proposition names.

    Raises:
        HanseError: INVALID_INPUT where the job is not well formed.
    """
    if job.code is not None:
        return (Finding("code", job.code.title, False, "site code may do anything; nothing can be said of it"),)
    model, train, strategy = check_model(job.model), check_train(job.train), check_strategy(job.strategy)
    return (
        *_of_model(model, train),
        _of_loss(train),
        *_of_optimizer(train, strategy),
        *_of_algorithm(job, train),
        *_of_rest(job, strategy),
        *_of_codec(job.codec),
    )


def require_utility(job: Job) -> None:
    """Refuse a job that says it preserves utility and does not.

    Raises:
        HanseError: INVALID_INPUT with each component that does not, and why.
    """
    broken = [finding for finding in check_utility(job) if not finding.ok]
    if broken:
        reasons = "; ".join(f"{finding.component} {finding.value}: {finding.reason}" for finding in broken)
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"utility_preserving: {reasons}",
            hint="change these, or leave utility_preserving out; docs/owner.md has a job that holds",
        )


def _of_model(model: AnyModel, train: TrainConfig) -> Iterator[Finding]:
    if has_batch_statistics(model) and _pools(train):
        yield Finding("model", model.name, True, "batch normalization by the statistics of all sites' batches together")
    elif has_batch_statistics(model):
        yield Finding("model", model.name, False, "batch normalization mixes the examples of a batch")
    else:
        yield Finding("model", model.name, True, "every layer treats each example by itself")
    if isinstance(model, MlpConfig | AlexnetConfig) and model.dropout:
        yield Finding("model.dropout", f"{model.dropout:g}", False, "dropout is random, so the model is no function")
    if isinstance(model, Normalized) and model.normalization == "kernel":
        kernel = model.kernel_settings
        share = max(kernel.dropout, kernel.final_dropout)
        reason = "dropout of the statistics is random, so the model is no function" if share else "no value is left out"
        yield Finding("model.kernel.dropout", f"{share:g}", not share, reason)
    for rule in model.state:
        if rule.keep != "global":
            group = rule.match or rule.layers
            yield Finding("model.state", f"{group} {rule.keep}", False, _STATE_REASONS[rule.keep])


def _pools(train: TrainConfig) -> bool:
    """Whether a first local step is as on the pooled batch, batch norm included (Wang, Shi and Chang, 2023)."""
    return isinstance(train.algorithm, FedTanConfig) and train.algorithm.backward


def _of_loss(train: TrainConfig) -> Finding:
    return Finding("train.loss", train.loss_name or "by the schema", True, "a mean over examples, each by itself")


def _of_optimizer(train: TrainConfig, strategy: StrategyConfig) -> Iterator[Finding]:
    site = train.optimizer
    if not isinstance(site, SgdConfig):
        yield Finding("train.optimizer", site.name, False, "squares and roots of gradients are not linear")
    elif site.momentum and not site.across_rounds:
        yield Finding(
            "train.optimizer.momentum", f"{site.momentum:g}", False,
            "it begins anew in every round; let it go on with across_rounds, or give it to the server: "
            "strategy.optimizer {name: sgd, lr: 1, momentum: m}",
        )  # fmt: skip
    else:
        yield Finding("train.optimizer", site.name, True, "linear in the gradients")
    if train.clip_norm is not None:
        yield Finding("train.clip_norm", f"{train.clip_norm:g}", False, "a clipped mean is not the mean of the clipped")
    if train.augmentation is not None:
        yield Finding(
            "train.augmentation", "random", False, "the examples that are trained on are drawn anew each time"
        )
    server = strategy.optimizer
    momentum = server.momentum if isinstance(server, ServerSgd) else 0.0
    if momentum and isinstance(site, SgdConfig) and site.momentum and site.across_rounds:
        yield Finding("strategy.optimizer.momentum", f"{momentum:g}", False, "the sites have momentum, too")
    elif momentum and train.schedule is not None:
        yield Finding(
            "train.schedule", train.schedule.name, False,
            "momentum at the server remembers steps at former rates; let the sites have it, with across_rounds",
        )  # fmt: skip
    elif isinstance(server, ServerSgd) and server.weight_decay and train.schedule is not None:
        decay = f"{server.weight_decay:g}"
        yield Finding("strategy.optimizer.weight_decay", decay, False, "it does not fall with the sites' rate")
    elif isinstance(server, NoOptimizerConfig | ServerSgd):
        yield Finding("strategy.optimizer", server.name, True, "linear in the updates")
    elif isinstance(server, FedDynConfig):
        yield Finding("strategy.optimizer", server.name, False, "it corrects the mean by what former rounds have left")
    elif isinstance(server, AdaptiveConfig):
        yield Finding("strategy.optimizer", server.name, False, "squares and roots of updates are not linear")
    else:
        yield Finding("strategy.optimizer", server.name, False, "nothing says that it is linear in the updates")


def _of_algorithm(job: Job, train: TrainConfig) -> Iterator[Finding]:
    name = train.algorithm.name
    full = train.batch_size == ALL_EXAMPLES
    known = name in ("fedavg", "fedsgd", "fedfgd", "fedsmb") or _pools(train)
    single = train.steps == 1 or (train.steps is None and train.epochs in (None, 1) and full)
    if not known:
        yield Finding("train.algorithm", name, False, "it changes the sites' gradients, or takes several local steps")
    elif not single:
        yield Finding("train.algorithm", name, False, "several local steps leave the path of centralized training")
    else:
        yield Finding("train.algorithm", name, True, "one local step a round")
    if full:
        by_examples = job.weighting == "examples"
        reason = "each example counts alike" if by_examples else "the mean over sites is not the mean over examples"
        yield Finding("weighting", job.weighting, by_examples, reason)
    else:
        yield Finding(
            "train.batch_size", str(train.batch_size), True,
            "mini-batch training, if all sites have equally many examples and the batch divides their number",
        )  # fmt: skip


def _of_codec(codec: Codec | None) -> Iterator[Finding]:
    if codec is None:
        return
    for field, lost in (("up", "what it leaves out of the updates is not in the model"),
                        ("down", "sites begin with another model than the hub's")):  # fmt: skip
        for config in check_chain(getattr(codec, field), f"codec.{field}"):
            exact = config.whole or config.role == "pack"
            yield Finding("codec", config.name, exact, "nothing is lost" if exact else lost)


def _of_rest(job: Job, strategy: StrategyConfig) -> Iterator[Finding]:
    reduction = strategy.reduction
    if isinstance(reduction, WeightedMeanConfig):
        yield Finding("strategy.reduction", reduction.name, True, "the weighted mean")
    else:
        yield Finding("strategy.reduction", reduction.name, False, "it is not the weighted mean of all updates")
    if strategy.sign_mask is not None and strategy.sign_mask.tau > 0:
        tau = f"tau {strategy.sign_mask.tau:g}"
        yield Finding("strategy.sign_mask", tau, False, "where signs disagree, the model moves less than the mean says")
    wanted = job.participants
    if wanted.fraction < 1:
        yield Finding("participants.fraction", f"{wanted.fraction:g}", False, "sites that are not sampled are missing")
    elif wanted.quorum < 1:
        yield Finding("participants.quorum", f"{wanted.quorum:g}", False, "sites that are late are left out of a round")
    else:
        yield Finding("participants", "all", True, "every site that is present takes part in every round")
    if job.privacy is not None:
        yield Finding("privacy", job.privacy.mechanism, False, "noise and clipping are the price of the guarantee")
    if job.secure_aggregation is not None:
        yield Finding(
            "secure_aggregation",
            job.secure_aggregation.mode,
            True,
            "masks cancel; values are rounded to the ring's grid",
        )
