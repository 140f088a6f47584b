"""Where a model version came from."""

from __future__ import annotations

from hanse_fabric.messages import Lineage
from hanse_workflows.registry import plugins_of
from hanse_workflows.rounds import TrainedRound
from hanse_workflows.verbs import Verbs


def lineage_of(run: Verbs, number: int, trained: TrainedRound, parent: str | None) -> Lineage:
    """Where a round's model came from: those whose updates are in it."""
    codes = sorted({answer.code_digest for answer in trained.answers if answer.code_digest is not None})
    return Lineage(
        run=run.run, round=number, workflow=run.job.workflow, participants=trained.reduction.participants,
        examples=trained.examples, strategy=run.job.strategy, seed=run.job.seed, parent=parent,
        code_digests=tuple(codes), reduced_on=_devices(trained), plugins=plugins_of(run.job) or None,
    )  # fmt: skip


def _devices(trained: TrainedRound) -> tuple[str, ...] | None:
    device = trained.reduction.device
    return None if device is None else tuple(device.split(", "))
