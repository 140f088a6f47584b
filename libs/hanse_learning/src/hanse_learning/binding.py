"""What a masked task asks, as digests that a site computes from the task it decoded and never believes.

R, the request (`request_digest`): SHA-256 of all that an answer depends on and that is the same for all sites. Sites
sign it, masks are made of it, and only answers to one R are summed. A hub that asks one site for something else gets
noise.

W, the work (`work_digest`): 32 bytes, SHA-256 of what the plain answer depends on, without names: the kind, the digests
of the model, of every extra and of the code, and of the settings what this kind reads. Not in it is whatever a hub can
change at will without changing what the answer tells: run, round, session, attempt, seeds, members, ring and noise;
which device, how long to wait, how a study is cut into chunks. Settings are read as the trainer reads them, so that a
default of a section that is written out is no other work. Compensators and sites remember which sets of sites they
summed of a W. Two texts that train alike in some other way are two works (`batch_size` above the number of examples, a
default that follows from the schema or the model, what site code does not read); that answers are alike is for tags to
tell. No tag is made of an evaluation, nor before the sums in the middle of a step (FedTAN): there no settings count,
and W is of the kind and the model alone. A site and its hub get the same W, also where one of them is of a later
release.

The cut (`cut_digest`): 32 bytes, SHA-256 of the limits that single answers are cut to before they are summed. The sums
of one work over the same sites under two cuts differ by what the largest answers lose: by one site's, if the hub puts
the limit below that one's alone. So a site remembers the cut of each W.

None needs numpy or torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError

from hanse_fabric.canonical import canonical
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import Bound, Task, TaskKind
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.masking import Ring, RingPlan
from hanse_fabric.names import derive_seed
from hanse_learning.config import TrainConfig, check_model, check_train, patience_of
from hanse_privacy.ring.plan import whole_numbers
from hanse_schemas.job import Job
from hanse_schemas.preparation import Preparation
from hanse_schemas.prepare import rules_of
from hanse_schemas.resources import FIELD
from hanse_schemas.study import Study


class Covered(Enum):
    """By which digest a field of a task is covered."""

    WORK = "R and W"
    REQUEST = "R"
    OWN = "neither: it differs by site, and is recomputed or authenticated by its protocol"
    NEITHER = "neither: no answer depends on it"


FIELDS: Mapping[str, Covered] = {
    "project": Covered.REQUEST,
    "run": Covered.REQUEST,
    "workflow": Covered.REQUEST,
    "kind": Covered.WORK,
    "round": Covered.REQUEST,
    "config": Covered.WORK,
    "model": Covered.WORK,
    "extras": Covered.WORK,
    "peers": Covered.REQUEST,
    "masking": Covered.REQUEST,
    "privacy": Covered.REQUEST,
    "bound": Covered.REQUEST,
    "participant": Covered.OWN,
    "seed": Covered.OWN,
    "payload": Covered.OWN,
    "trained": Covered.OWN,
    "id": Covered.NEITHER,
    "step": Covered.NEITHER,
    "issued_at": Covered.NEITHER,
    "ledger": Covered.NEITHER,
    "terms": Covered.NEITHER,
    "deadline": Covered.NEITHER,
    "deltas": Covered.NEITHER,
}
"""Every field of a task."""

_COMMON = tuple(name for name, covered in FIELDS.items() if covered in (Covered.WORK, Covered.REQUEST))
_UNREAD: Mapping[type[BaseModel], frozenset[str]] = {
    TrainConfig: frozenset({FIELD}),
    Study: frozenset({"chunk", "in_flight", "few_cohorts", "few_samples"}),
}
"""Settings on which no plain answer depends."""
_AT_ONCE = 16
"""Tasks whose digests are kept: a site asks for each of them several times while it answers one."""


class _Same:
    """A task as this very object: what it says has no hash, and a changed copy is another."""

    __slots__ = ("task",)

    def __init__(self, task: Task) -> None:
        self.task = task

    def __hash__(self) -> int:
        return id(self.task)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.task is other.task


def common(task: Task) -> dict[str, Any]:
    """The part of a task that is the same for all sites, and on which the answers depend."""
    return {name: getattr(task, name) for name in _COMMON}


def request_digest(task: Task, *, noise: bytes | None = None) -> bytes:
    """R, 32 bytes.

    Args:
        noise: digest of what was agreed on who draws noise for whom; None where nobody does.

    Raises:
        HanseError: INVALID_INPUT for settings with a number that is not finite.
    """
    return _request_of(_Same(task), noise)


@lru_cache(_AT_ONCE)
def _request_of(same: _Same, noise: bytes | None) -> bytes:
    return _digest(b"hanse request 1\n", {**common(same.task), "noise": noise})


def work_digest(task: Task) -> bytes:
    """W, 32 bytes, of a task of kind TRAIN, EVALUATE, STUDY or PREPARE.

    Raises:
        HanseError: INVALID_INPUT for settings that cannot be read, or a kind of which there is no W.
    """
    return _work_of(_Same(task))


@lru_cache(_AT_ONCE)
def _work_of(same: _Same) -> bytes:
    task = same.task
    return _digest(b"hanse work 1\n", {"kind": task.kind, **_objects(task), "reads": _read(task)})


def cut_digest(task: Task) -> bytes:
    """The cut, 32 bytes, of a masked task: bounds of the rings, by which rotation, clipping norms, bounds of metrics.

    Not in it is the step of a ring's grid, which follows from how many take part: a site keeps that beside it.

    Raises:
        HanseError: INVALID_INPUT for settings that cannot be read.
    """
    return _cut_of_task(_Same(task))


@lru_cache(_AT_ONCE)
def _cut_of_task(same: _Same) -> bytes:
    task = same.task
    plan = None if task.masking is None else task.masking.ring
    private = None if task.privacy is None else task.privacy.privacy
    train = dict(task.config.get("train") or {})
    return _digest(
        b"hanse cut 1\n",
        {
            "ring": plan and {
                "bounds": _bounds(plan, named=task.kind is not TaskKind.PREPARE),
                "largest_weight": plan.largest_weight,
                "refuses": plan.refuse_out_of_range,
                **({} if plan.rotation is None else {"rotation": plan.rotation}),
            },
            "privacy": private and {
                "placement": private.placement, "mechanism": private.mechanism, "clip": private.clip,
                "metrics": private.metrics and private.metrics.bounds,
            },
            "train": {name: train.get(name) for name in ("clip_norm", "clipping")},
        },
    )  # fmt: skip


def _bounds(plan: RingPlan, *, named: bool) -> dict[str, float | None] | list[float]:
    """What the rings cut to. Steps of a preparation send other arrays each, all of counts and limbs: there it matters
    which limits there are, and not of what."""
    bounds = {name: _cut_of(ring, plan) for name, ring in {"": plan.default, **plan.entries}.items()}
    return bounds if named else sorted({bound or 0.0 for bound in bounds.values()})


def _cut_of(ring: Ring, plan: RingPlan) -> float | None:
    """What a ring cuts to; None: to nothing, as a ring of whole numbers that is as wide as its sum allows."""
    return None if ring == whole_numbers(plan.participants) else ring.bound


def bound_to(job: Job, key: str = "") -> Bound:
    """What the masked tasks of a job's run are bound to.

    Args:
        key: of a study's computation.
    """
    told = canonical(job.model_dump(mode="json", exclude_defaults=True))
    return Bound(job=hashlib.sha256(told).hexdigest(), seed=job.seed, key=key)


def has_sums(task: Task) -> bool:
    """Whether a task has sums in the middle of its work, which leave at once, before there is an update."""
    if task.kind is not TaskKind.TRAIN or task.config.get("code"):
        return False
    return patience_of(check_train(task.config.get("train") or {})) is not None


def task_seed(kind: TaskKind, seed: int, at: int | str, participant: str) -> int:
    """A participant's own seed, which depends on nothing that the hub could choose for it alone.

    Args:
        seed: the job's.
        at: the round, or of a study the computation's key.
    """
    if kind is TaskKind.STUDY:
        return derive_seed(seed, at, participant)
    return derive_seed(seed, at, participant, kind.value)


def _digest(domain: bytes, value: Any) -> bytes:
    try:
        return hashlib.sha256(domain + canonical(value)).digest()
    except (TypeError, ValueError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"task.config: it has no digest: {error}") from None


def _objects(task: Task) -> dict[str, Any]:
    """The objects that the task's kind reads. One that is sent beside these makes no other work."""
    extras = dict(task.extras or {})
    match task.kind:
        case TaskKind.PREPARE:
            return {"model": None, "extras": {}}
        case TaskKind.EVALUATE:
            return {"model": task.model, "extras": {}}
        case TaskKind.STUDY:
            return {"model": task.model, "extras": extras}
        case TaskKind.TRAIN if task.config.get("code"):  # which may read whatever it is given
            return {"model": task.model, "extras": extras}
        case TaskKind.TRAIN:
            reads = check_train(task.config.get("train") or {}).algorithm.extras
            return {"model": task.model, "extras": {name: ref for name, ref in extras.items() if name in reads}}
        case kind:
            raise _not_summed(kind)


def _read(task: Task) -> dict[str, Any]:
    """The settings that the task's kind reads."""
    config = task.config
    match task.kind:
        case TaskKind.STUDY:
            try:
                study = Study.model_validate(config.get("study"))
            except ValidationError as error:
                raise HanseError(ErrorCode.INVALID_INPUT, f"task.config.study: {explain(error)}") from None
            return {"study": _said(study), "step": config.get("step"), "settings": config.get("settings")}
        case TaskKind.PREPARE:
            # Not how the columns are scaled and filled: sums of the same table tell about the same people.
            columns = [[rule.name, rule.kind] for rule in rules_of(config.get("prepare"))]
            if task.privacy is None:
                return {"columns": columns}
            # With noise, which is charged each time, other ends are other sums, and none is a part of an exact one.
            return {"columns": columns, "noisy": config.get("prepare"), "privacy": task.privacy.privacy}
        case TaskKind.EVALUATE:
            return {}  # whatever is told of one model, by which settings too, is told of one chain of sets
        case TaskKind.TRAIN:
            return _read_in_training(config)
        case kind:
            raise _not_summed(kind)


def _not_summed(kind: TaskKind) -> HanseError:
    return invalid("task.kind", kind.value, "train, evaluate, study or prepare, whose answers are summed")


def _read_in_training(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("code"):  # it may read whatever it is given
        train = {name: value for name, value in dict(config.get("train") or {}).items() if name != FIELD}
        return {name: value for name, value in config.items() if name != "info"} | {"train": train}
    model, trained = check_model(config.get("model") or {}), check_train(config.get("train") or {})
    if patience_of(trained) is not None:
        return {"sums": "within a step"}  # the first of them are the same by many settings, and leave at once
    # Not which plug-ins the hub says it has, for the site runs its own; the name stays lest older works were others.
    read = {"model": _said(model), "train": _said(trained), "plugins": None}
    if config.get("preparation") is not None:
        read["preparation"] = _preparation(config["preparation"])
    return read


def _preparation(given: Any) -> Any:
    """As an honest hub writes it, all defaults in it."""
    try:
        return Preparation.model_validate(given).model_dump(mode="json")
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"task.config.preparation: {explain(error, Preparation)}") from None


def _said(value: Any) -> Any:
    """What settings say beside their defaults, with the names of what they are settings of."""
    if not isinstance(value, BaseModel):
        return [_said(each) for each in value] if isinstance(value, tuple) else value
    unread = _UNREAD.get(type(value), frozenset())
    return {
        name: _said(getattr(value, name))
        for name, field in type(value).model_fields.items()
        if name not in unread and (name == "name" or getattr(value, name) != field.default)
    }
