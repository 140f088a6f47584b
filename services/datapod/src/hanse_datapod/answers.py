"""What a site answers to a task, from what its worker has made: named by content, and ready to be made durable."""

from __future__ import annotations

import os
from pathlib import Path

from hanse_datapod.journal import Finished
from hanse_datapod.policy import Policy
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.messages import ObjectRef, Outcome, Task, TaskKind
from hanse_fabric.site import SiteLink, durable
from hanse_fabric.site.link import result_for


def plain_answer(link: SiteLink, policy: Policy, task: Task, outcome: WorkOutcome) -> Finished:
    """The signed answer of a task without masking. A large update is on the disk when this returns.

    Raises:
        HanseError: POLICY; TRAINING_FAILED for a metric that is not finite; NO_SPACE.
    """
    if task.kind is not TaskKind.INITIALIZE:
        policy.check_examples(outcome.examples)
    metrics, withheld = policy.metrics(outcome.metrics)
    ref, data = (None, None) if outcome.update is None else resting(link, task, outcome.update)
    unsigned = result_for(
        task,
        Outcome.DONE,
        update=ref,
        examples=outcome.examples,
        metrics=metrics,
        seconds=outcome.seconds,
        reason=withheld_reason(withheld),
        code_digest=outcome.code_digest,
    )
    return Finished(link.sign(unsigned), data)


def resting(link: SiteLink, task: Task, path: Path) -> tuple[ObjectRef, bytes | None]:
    """Name a file that is about to leave: (reference, its bytes where they are few and travel on the bus).

    A small file is removed, for its bytes go into the journal; a large one is on the disk when this returns.
    """
    ref = link.update_ref(task, path)
    if ref.key is None:
        data = path.read_bytes()
        path.unlink()
        return ref, data
    _sync_file(path)
    return ref, None


def withheld_reason(metrics: tuple[str, ...]) -> str:
    """What the owner is told of metrics that the policy keeps back: their names."""
    return f"withheld by the site's policy: metrics {', '.join(metrics)}" if metrics else ""


def _sync_file(path: Path) -> None:
    with durable.space_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            durable.sync(descriptor)
        finally:
            os.close(descriptor)
        durable.sync_folder(path.parent)
