"""Built-in models and trainers: the first model, a round's training, evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from torch import nn

from hanse_datapod.worker.port import SPARE, DataState, WorkOutcome, extra_output
from hanse_datapod.worker.work.checkpoint import checkpoint_of
from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.modules import GivenModel, module_of, receive
from hanse_datapod.worker.work.private import cut_of
from hanse_datapod.worker.work.site_state import LOCALS, local_group
from hanse_datapod.worker.work.subgroups import check_whose, fewest_of, groups_of
from hanse_datapod.worker.work.written import write_round
from hanse_fabric.errors import invalid
from hanse_fabric.tensors.file import read_tensors, write_tensors
from hanse_fabric.tensors.layout import Layout
from hanse_learning.codecs.at_site import OF_CODECS
from hanse_learning.config import check_train
from hanse_learning.pooled.layout import counts_in
from hanse_learning.site.algorithms import adapt
from hanse_learning.site.devices import on_device
from hanse_learning.site.entries import arrays_of, update_of, views_of
from hanse_learning.site.evaluation import evaluated
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.private_round import made_private, train_with
from hanse_learning.site.session import Session
from hanse_learning.site.site_privacy import check_site_privacy


def initialize(work: WorkContext) -> WorkOutcome:
    """Write the run's first model."""
    module, _, entries = module_of(work, examples_or_none(work))
    write_tensors(work.output, entries.travelling, in_layout(arrays_of(module), entries.travelling))
    return WorkOutcome(work.output, 0, {})


def evaluate(work: WorkContext) -> WorkOutcome:
    """Measure the received model, or the site's personal one, on the test examples."""
    cut, examples = cut_of(work), test_examples(work)
    module, problem, received = receive(work, examples)
    with on_device(module, work.device):
        note = adapt(_session(work, module, problem, received, work.data().train))
        counts = counts_in(work.config)
        groups = None if counts is None else groups_of(work, counts)
        if counts is not None and counts.scale is not None:
            check_whose(examples, work.schema)
        found = evaluated(module, examples, problem, cut=cut, counts=counts, groups=groups)
    data = DataState() if groups is None else DataState(group=fewest_of(groups))
    return WorkOutcome(None, len(examples), found.metrics, note=note or received.note, counted=found.counted, data=data)


def train(work: WorkContext) -> WorkOutcome:
    """Train, and write the update, the extras, and what stays at the site for its next round."""
    examples = work.data().train
    module, problem, received = receive(work, examples)
    entries, private, checkpoint = received.entries, check_site_privacy(work.config), checkpoint_of(work)
    with on_device(module, work.device):
        session = replace(_session(work, module, problem, received, examples), checkpoints=checkpoint)
        made = train_with(private, session)
        module.zero_grad(set_to_none=True)  # the next task uses the module, but not its gradients
    if not work.speaks:
        return WorkOutcome(None, len(examples), {})
    trained = views_of(module)
    kept = dict(made.keep)
    if entries.local.entries:
        kept[local_group(work.config)] = in_layout(trained, entries.local)
    metrics, info = made.metrics, made.info
    if private is not None:
        if made.extras and private.mechanism != "dp_sgd":  # which has made them of what has its noise already
            raise invalid("train.algorithm", ", ".join(made.extras), "nothing beside the update, which has noise alone")
        metrics = private.covered(metrics)
        info = {name: value for name, value in info.items() if name in ("steps", "normalizer")}

    def update(consume: bool) -> Mapping[str, np.ndarray]:
        # Over the module's own memory: the next task loads every value of the module before its use.
        change = update_of(received.arrays, trained, entries.travelling, consume=consume)
        return change if private is None else made_private(change, entries.travelling, private)

    lost = write_round(work, entries.travelling, update, kept, received.state, over=work.output.with_name(SPARE))
    extras = {name: extra_output(work.output, name) for name in made.extras}
    for name, path in extras.items():
        write_tensors(path, entries.travelling, _filled(made.extras[name], entries.travelling), sync=False)
    if checkpoint is not None:
        checkpoint.remove()
    note = "; ".join(part for part in (received.note, made.note, lost) if part)
    return WorkOutcome(work.output, len(examples), metrics, extras=extras, info=info, note=note)


def _session(
    work: WorkContext, module: nn.Module, problem: Problem, received: GivenModel, examples: Examples
) -> Session:
    return Session(
        module=module,
        data=examples,
        config=check_train(work.config.get("train") or {}),
        problem=problem,
        seed=work.seed,
        round=max(1, work.round),
        local=frozenset(entry.name for entry in received.entries.local),
        kept={name: group for name, group in received.state.groups.items() if name not in (*LOCALS, *OF_CODECS)},
        lost=received.state.lost,
        extras={name: read_tensors(path)[1] for name, path in work.extras.items()},
        wanted=frozenset(work.config.get("info") or ()),
        on_progress=work.on_progress,
        sums=work.sums,
        ranks=work.ranks,
        memory=work.memory,
    )


def examples_or_none(work: WorkContext) -> Examples | None:
    """The data, only where the schema leaves the model's shape open: the first model shall not depend on the site."""
    if work.schema.kind == "open" or (work.schema.task == "classification" and work.schema.classes is None):
        return work.data().train
    return None


def test_examples(work: WorkContext) -> Examples:
    """The site's test examples.

    Raises:
        HanseError: INVALID_INPUT where there are none.
    """
    examples = work.data().test
    if examples is None or not len(examples):
        raise invalid("test data", None, "a test file or a test fraction above 0, which evaluation needs")
    return examples


def in_layout(arrays: Mapping[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    """The arrays that the layout has."""
    return {entry.name: arrays[entry.name] for entry in layout if entry.name in arrays}


def _filled(changes: Mapping[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    """An extra in the model's layout: zeros where it says nothing."""
    return {
        entry.name: changes[entry.name] if entry.name in changes else np.zeros(entry.shape, entry.numpy)
        for entry in layout
    }
