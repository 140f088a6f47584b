"""A site's answer to a task without masking, made from the worker's outcome."""

from __future__ import annotations

import os
from pathlib import Path

from hanse_datapod.answers.withheld import of_the_data, seconds_told
from hanse_datapod.home.folders import repeatable
from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric import durable
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Outcome, Task, TaskKind
from hanse_site import SiteLink
from hanse_site.answering import result_for


def plain_answer(
    link: SiteLink, policy: Policy, task: Task, outcome: WorkOutcome, *, counted: bool = False
) -> FinishedTask:
    """The signed answer of a task without masking. A large update of a task that is charged is on the disk when this
    returns.

    Where the number of examples stays at the site, it says 1: an update weighs as every other.

    Args:
        counted: the number of examples has noise, and may be told.

    Raises:
        HanseError: POLICY; TRAINING_FAILED for a metric that is not finite; NO_SPACE.
    """
    if task.kind is not TaskKind.INITIALIZE:
        with of_the_data(task):
            policy.check_examples(outcome.examples)
    metrics, withheld = policy.metrics(outcome.metrics)
    words, kept = policy.counted(task, outcome)
    info = _numbers_for_strategy(policy, task, outcome)
    ref, data = (None, None) if outcome.update is None else reference_to(link, task, outcome.update)
    extras = {name: reference_to(link, task, path) for name, path in outcome.extras.items()}
    unsigned = result_for(
        task,
        Outcome.DONE,
        update=ref,
        examples=outcome.examples if counted or policy.privacy.tells("examples") else min(outcome.examples, 1),
        metrics=metrics,
        seconds=seconds_told(policy.privacy, task, outcome.seconds),
        reason=note_to_owner((*withheld, *kept), outcome),
        code_digest=outcome.code_digest,
        extras={name: ref for name, (ref, _) in extras.items()},
        info=info,
        counted=words,
    )
    small = {name: data for name, (_, data) in extras.items() if data is not None}
    return FinishedTask(link.sign(unsigned), data, extras=small)


def require_update_alone(outcome: WorkOutcome) -> None:
    """Refuse to answer with more than the update, where nothing would hide the rest.

    Raises:
        HanseError: POLICY.
    """
    if outcome.extras:
        raise HanseError(
            ErrorCode.POLICY,
            f"the answer is to be hidden, and beside the update there is {', '.join(sorted(outcome.extras))}",
            hint="use another train.algorithm, or leave secure_aggregation and privacy out",
        )


def _numbers_for_strategy(policy: Policy, task: Task, outcome: WorkOutcome) -> dict[str, float]:
    """The numbers that the strategy asks for; the site's policy treats them as metrics.

    Raises:
        HanseError: POLICY where they may not leave, for the strategy cannot do without.
    """
    wanted = task.config.get("info") or ()
    told, withheld = policy.metrics({name: outcome.info[name] for name in wanted if name in outcome.info})
    if withheld:
        raise HanseError(
            ErrorCode.POLICY,
            f"the strategy needs {', '.join(withheld)} of each site, which outputs.metrics of this site's policy holds",
            hint="let these leave, or use another strategy.reduction",
        )
    return told


def reference_to(
    link: SiteLink, task: Task, path: Path, *, digested: tuple[str, tuple[str, ...]] | None = None
) -> tuple[ObjectRef, bytes | None]:
    """(reference by content, bytes) of a file that is about to leave; bytes are None where it does not fit on the bus.

    A small file is removed, for its bytes go into the journal. A large one is on the disk when this returns, unless the
    work may be done again: then nobody waits for the disk, and after a power cut the file is held against its digest
    (`TaskFolders.has_all_of`).

    Args:
        digested: (digest, leaves) of a file that this process wrote and hashed meanwhile. What a worker wrote is read:
            site code may run there, and the outbox log says what left, not what it claims.
    """
    ref = link.update_ref(task, path, digested=digested)
    if ref.key is None:
        data = path.read_bytes()
        path.unlink()
        return ref, data
    if not repeatable(task):
        _sync_file(path)
    return ref, None


def note_to_owner(withheld: tuple[str, ...], outcome: WorkOutcome) -> str:
    """What the owner is told beside the answer: metrics that the policy withholds, and the worker's note."""
    held = f"withheld by the site's policy: metrics {', '.join(withheld)}" if withheld else ""
    return "; ".join(part for part in (held, outcome.note) if part)


def _sync_file(path: Path) -> None:
    with durable.space_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            durable.sync(descriptor)
        finally:
            os.close(descriptor)
        durable.sync_folder(path.parent)
