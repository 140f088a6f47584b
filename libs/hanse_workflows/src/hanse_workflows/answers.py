"""What an answer to a step's task must look like. What does not is a failure of its participant, with a reason."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass

from hanse_fabric.messages import INLINE_LIMIT, Masking, MaskingMode, ObjectRef, Outcome, Result, TaskKind
from hanse_fabric.messages.objects import update_key
from hanse_fabric.tensors.digest import leaf_count
from hanse_workflows.ask import Ask
from hanse_workflows.outcomes import Answer, Failure

_WITH_UPDATE = frozenset({TaskKind.INITIALIZE, TaskKind.TRAIN, TaskKind.STUDY, TaskKind.PREPARE})
_MOST_EXTRAS = 4
_SLACK = 64 << 10
MOST_NUMBERS, MOST_LETTERS = 256, 8 << 10
"""Metrics of one answer, and letters of all their names; the same of `info`. They stay in the run's journal for good,
in room that all projects share."""
_MOST_NAME, _MOST_CODE, _MOST_REASON = 64, 64, 500
WITH_PAYLOAD = frozenset({TaskKind.ADVERTISE, TaskKind.SHARE, TaskKind.UNMASK, TaskKind.CHECK})
"""Steps of the masking and noise protocols, whose answer is a protocol's message; and what a site says of a job."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an answer to a task of this step must look like. `largest` bounds an update's size in bytes; `extras` and
    `info` are the names of what the algorithm and the strategy need; `code` is the digest of the job's site code."""

    kind: TaskKind
    project: str
    run: str
    largest: int
    masking: Masking | None = None
    extras: tuple[str, ...] = ()
    info: tuple[str, ...] = ()
    code: str | None = None

    @classmethod
    def of(cls, ask: Ask, project: str, run: str, largest: int) -> Terms:
        """Of the answers to a step."""
        code = ask.config.get("code") or {}
        return cls(ask.kind, project, run, largest, ask.masking, ask.answered, ask.info, code.get("digest"))


def judge(result: Result, terms: Terms) -> Answer | Failure:
    """An answer if the result holds what the step needs, else a failure that says what is wrong. Pure."""
    if result.outcome is not Outcome.DONE:
        return Failure(
            participant=result.participant, outcome=result.outcome, code=result.code[:_MOST_CODE],
            reason=result.reason[:_MOST_REASON],
        )  # fmt: skip
    wrong = _wrong(result, terms)
    if wrong:
        return Failure(
            participant=result.participant, outcome=Outcome.FAILED, code="invalid-input", reason=wrong[:_MOST_REASON]
        )
    return Answer(
        participant=result.participant,
        examples=result.examples,
        update=result.update if terms.kind in _WITH_UPDATE else None,
        metrics=result.metrics,
        code_digest=result.code_digest,
        tally=result.tally if terms.masking is not None else None,
        seed=result.seed if terms.masking is not None else None,
        extras=result.extras or {} if terms.kind in _WITH_UPDATE else {},
        info=result.info or {},
        counted=result.counted or "" if terms.kind is TaskKind.EVALUATE else "",
        payload=base64.b64encode(result.payload) if result.payload and _wants_payload(terms) else None,
    )


def _wants_payload(terms: Terms) -> bool:
    """In mode pairwise a masked answer comes with a signature over the set that it was masked with."""
    return terms.kind in WITH_PAYLOAD or (terms.masking is not None and terms.masking.mode is MaskingMode.PAIRWISE)


def _wrong(result: Result, terms: Terms) -> str:
    if wrong := _too_much(result):
        return wrong
    if terms.kind in WITH_PAYLOAD:
        return "" if result.payload is not None else f"payload: none given, the {terms.kind.value} step needs one"
    if result.code_digest not in (None, terms.code):
        return f"code_digest: {result.code_digest} is not that of the job's code, {terms.code}"
    if terms.masking is not None and terms.kind is not TaskKind.INITIALIZE:
        wrong = _wrongly_masked(result, terms.masking)
        if wrong:
            return wrong
    elif terms.kind is TaskKind.TRAIN and result.examples < 1:
        return f"examples: {result.examples} is not a positive number"
    if terms.kind not in _WITH_UPDATE:
        return ""
    if result.update is None:
        return f"update: none given, the {terms.kind.value} step needs one"
    if missing := [name for name in terms.extras if name not in (result.extras or {})]:
        return f"extras: {', '.join(missing)} is not given, which the job's algorithm needs"
    for name in terms.info:
        number = (result.info or {}).get(name)
        if number is None or not math.isfinite(number):
            return f"info.{name}: {number} is not a finite number, which the job's strategy needs"
    for update in (result.update, *(result.extras or {}).values()):
        if wrong := _wrong_update(update, terms, result):
            return wrong
    return ""


def _too_much(result: Result) -> str:
    """What of an answer is more than any honest one has, and would be kept with the run."""
    for what, numbers in (("metrics", result.metrics), ("info", result.info or {})):
        letters = sum(map(len, numbers))
        if len(numbers) > MOST_NUMBERS or letters > MOST_LETTERS:
            taken = f"at most {MOST_NUMBERS} with {MOST_LETTERS} are taken"
            return f"{what}: {len(numbers)} numbers whose names have {letters} letters, {taken}"
    named = result.extras or {}
    if len(named) > _MOST_EXTRAS:
        return f"extras: {len(named)} are more than {_MOST_EXTRAS}"
    if any(len(name) > _MOST_NAME for name in named):
        return f"extras: a name of more than {_MOST_NAME} letters"
    for ref in (result.update, result.tally, *named.values()):
        if ref is not None and ref.leaves and len(ref.leaves) != leaf_count(ref.size):
            return f"leaves: {len(ref.leaves)} of an object of {ref.size} bytes, which has {leaf_count(ref.size)}"
    return ""


def _wrongly_masked(result: Result, masking: Masking) -> str:
    if result.examples or result.metrics or result.counted:
        return "examples, metrics, counted: given in clear in a masked answer; they belong in the tally"
    tally = result.tally
    if tally is None or tally.key is not None or tally.inline is not None or tally.size > INLINE_LIMIT:
        return f"tally: {result.tally} is not a small object on the update subject"
    if masking.mode is MaskingMode.PAIRWISE and result.payload is None:
        return "payload: none given, a pairwise answer needs the signature over its set of members"
    if masking.mode is not MaskingMode.COMPENSATOR:
        return ""
    if result.seed is None or result.seed.participant != result.participant:
        return "seed: none of this participant is given, the compensator needs one"
    return ""


def _wrong_update(update: ObjectRef, terms: Terms, result: Result) -> str:
    if update.inline is not None:
        return "update: given inline in the result, which the coordinator may not see; send it on the update subject"
    if update.size > terms.largest:
        return f"update.size: {update.size} bytes are more than the {terms.largest} that this model allows"
    expected = update_key(terms.project, terms.run, result.participant, result.task, update.digest)
    # Where release 0.1.0 had put it, for a step that was open when the hub was upgraded.
    former = f"updates/{terms.project}/{terms.run}/{update.digest}"
    if update.key not in (None, expected, former):
        return f"update.key: {update.key!r} is not {expected!r}"
    return ""


def largest_update(model: ObjectRef | None, masking: Masking | None, largest_model: int) -> int:
    """Bytes that an update to `model` may have; `largest_model` where it is the first model itself. Pure.

    A ring of 48 or 64 bits doubles numbers of 32 at most; signs come to that, of numbers of 16 bits or more.
    """
    if model is None:
        return largest_model
    plan = None if masking is None else masking.ring
    wide = plan is not None and any(ring.bits > 32 for ring in (plan.default, *plan.entries.values()))
    signs = 0 if plan is None or plan.signs is None else model.size * plan.signs // 16
    return model.size * 11 // 10 * (2 if wide else 1) + signs + _SLACK
