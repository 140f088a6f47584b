"""A worker with real tensor files, tasks that ask for a masked answer, and the compensator's side of it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.messages import Bound, Masking, MaskingMode, ObjectRef, Ring, RingPlan, SealedSeed, Task, TaskKind
from hanse_fabric.tensors.file import encode_tensors, layout_like, write_tensors
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.binding import task_seed
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.masks.seal import SeedNote, open_sealed
from unit.datapod.site_actors import CountingWorker, task

PRIVATE = bytes(range(32))
"""The compensator's private key."""
PUBLIC = X25519PrivateKey.from_private_bytes(PRIVATE).public_key().public_bytes_raw()
PLAN = RingPlan(
    participants=3,
    largest_weight=100,
    default=Ring(bits=64, fraction=30, bound=8.0),
    metrics=("accuracy", "loss"),
)


def model(arrays: Mapping[str, np.ndarray]) -> ObjectRef:
    """A model to start from, all zeros, of the arrays' shapes."""
    data = encode_tensors(layout_like(arrays), {name: np.zeros_like(array) for name, array in arrays.items()})
    return ref_of_bytes(data, inline=True)


def policy(**rules: Any) -> Policy:
    """A policy that pins the compensator's key."""
    return Policy(masking=MaskingPolicy.model_validate({"compensator": base64.b64encode(PUBLIC)} | rules))


def masked_task(
    step: str = "r1-train", *, mode: MaskingMode = MaskingMode.COMPENSATOR, plan: RingPlan = PLAN,
    session: str | None = None, minimum: int = 3, **fields: Any,
) -> Task:  # fmt: skip
    key = base64.b64encode(PUBLIC) if mode is MaskingMode.COMPENSATOR else None
    masking = Masking(mode=mode, session=session or step, minimum=minimum, ring=plan, compensator=key)
    return bound_task(task(step, masking=masking, **fields))


def bound_task(given: Task) -> Task:
    """A task as a hub of today sends it: bound, with the seed that follows from the job's."""
    at = "c1" if given.kind is TaskKind.STUDY else given.round
    bound = Bound(job="e" * 64, seed=7, key="c1" if given.kind is TaskKind.STUDY else "")
    return given.model_copy(update={"bound": bound, "seed": task_seed(given.kind, 7, at, given.participant)})


class TensorWorker(CountingWorker):
    """A worker whose update is a tensor file: its arrays times the number of times that it was asked."""

    def __init__(self, arrays: Mapping[str, np.ndarray], *, count: Path | None = None) -> None:
        super().__init__(count=count)
        self.arrays = dict(arrays)

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        outcome = await super().work(request, on_progress)
        if outcome.update is not None:
            write_tensors(outcome.update, layout_like(self.arrays), self.arrays)
        return outcome


def opened(given: Task, seed: SealedSeed) -> SeedNote:
    """What the compensator reads, with the seed that it sums the mask of."""
    assert given.masking is not None
    request = None if seed.request is None else bytes.fromhex(seed.request)
    note = open_sealed(
        PRIVATE, seed.sealed, project=given.project, run=given.run, session=given.masking.session,
        participant=seed.participant, request=request,
    )  # fmt: skip
    return replace(note, seed=bound_seed(note.seed, request))


def evaluation(step: str = "r1-evaluate") -> Task:
    return masked_task(step, kind=TaskKind.EVALUATE)
