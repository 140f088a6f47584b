"""What must hold between a job, its strategy and its model before a byte of an update is read."""

from __future__ import annotations

from dataclasses import replace

from hanse_fabric.errors import invalid
from hanse_fabric.messages import ReduceJob
from hanse_fabric.tensors.layout import Layout, Rule
from hanse_learning.server.config.foreign import codec_plugins, strategy_plugins
from hanse_learning.server.optimizers import Adaptive
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.strategy import Strategy


def blamed(job: ReduceJob, error: BaseException) -> str | None:
    """What to tell of an exception that a plug-in of the job is the reason of; None where none is."""
    plugins = (*strategy_plugins(job.strategy), *codec_plugins(job.codec or ()))
    return next(filter(None, (plugin.blamed(error) for plugin in plugins)), None)


def check_plugins(job: ReduceJob) -> None:
    """Raises HanseError CONFLICT unless reduction, server optimizer and codecs are here what they are at the
    coordinator, INVALID_INPUT where one is not installed here."""
    known = (job.strategy_digest, job.optimizer_digest)
    for plugin, digest in zip(strategy_plugins(job.strategy), known, strict=True):
        plugin.check_same(digest, here="this aggregator", there="the coordinator")
    for plugin in codec_plugins(job.codec or ()):
        plugin.check_same((job.codec_digests or {}).get(plugin.name), here="this aggregator", there="the coordinator")


def check_order(job: ReduceJob) -> None:
    """Raises HanseError INVALID_INPUT unless the updates are of distinct participants in the order of their names."""
    names = [update.participant for update in job.updates]
    if not names or names != sorted(set(names)):
        raise invalid("updates", names, "one update or more, of distinct participants sorted by name")


def within(strategy: Strategy, job: ReduceJob) -> Strategy:
    """The strategy for this very job.

    Noise belongs to one reduction of these very updates. The same reduction gets the same noise again, any other gets
    other noise.
    """
    if not isinstance(strategy.reduction, PrivateMean):
        return strategy
    updates = (f"{update.participant}/{update.ref.digest}" for update in job.updates)
    names = [update.participant for update in job.updates]
    reduction = strategy.reduction.within(job.project, job.run, job.step, *updates, participants=names)
    return replace(strategy, reduction=reduction)


def check_private(strategy: Strategy, layout: Layout) -> None:
    """Raises HanseError INVALID_INPUT where a strategy adds noise to parameters, and the model has buffers, too."""
    buffer = next((entry for entry in layout if entry.rule is not Rule.PARAMETER), None)
    if isinstance(strategy.reduction, PrivateMean) and buffer is not None:
        raise invalid(f"entry {buffer.name}", buffer.rule.value, "a parameter: buffers would get no noise")


def check_precision(strategy: Strategy, layout: Layout) -> None:
    """Raises HanseError INVALID_INPUT where an optimizer needs more precision than a parameter has."""
    if isinstance(strategy.optimizer, Adaptive):
        for entry in layout:
            if entry.rule is Rule.PARAMETER and entry.dtype == "F16":
                raise invalid(
                    f"entry {entry.name}.dtype", entry.dtype, f"F32 or F64, which {strategy.optimizer.kind} needs",
                    hint="second moments underflow in half precision; use the optimizer sgd or none",
                )  # fmt: skip
