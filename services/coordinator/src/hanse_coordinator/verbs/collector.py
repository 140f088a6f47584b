"""The answers to one opened step, as they come in: who has answered, who counts, and when the step may close."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hanse_coordinator.waiting import first_of
from hanse_fabric.clock import Clock
from hanse_fabric.messages import INLINE_LIMIT, Masking, MaskingMode, ObjectRef, Outcome, Result, TaskKind
from hanse_workflows.exchange import IN_VAIN
from hanse_workflows.outcomes import Answer, Failure

_WITH_UPDATE = frozenset({TaskKind.INITIALIZE, TaskKind.TRAIN, TaskKind.STUDY})
_MOST_EXTRAS = 4
_WITH_PAYLOAD = frozenset({TaskKind.ADVERTISE, TaskKind.SHARE, TaskKind.UNMASK})


@dataclass(frozen=True, slots=True)
class Terms:
    """What an answer to a task of this step must look like. `largest` bounds an update's size in bytes; `extras` and
    `info` are the names of what the algorithm and the strategy need."""

    kind: TaskKind
    project: str
    run: str
    largest: int
    masking: Masking | None = None
    extras: tuple[str, ...] = ()
    info: tuple[str, ...] = ()


class Collector:
    """Collects the answers of the tasks it is given, each participant's first one.

    Args:
        tasks: task id by participant.
        needed: how many good answers are the quorum.
    """

    def __init__(self, tasks: Mapping[str, str], *, needed: int, terms: Terms) -> None:
        self._tasks, self._needed, self._terms = dict(tasks), needed, terms
        self.answers: dict[str, Answer] = {}
        self.failures: dict[str, Failure] = {}
        self._news = asyncio.Event()

    @property
    def complete(self) -> bool:
        return len(self.answers) + len(self.failures) == len(self._tasks)

    def missing(self) -> list[str]:
        """Those who have not answered."""
        return [name for name in self._tasks if name not in self.answers and name not in self.failures]

    @property
    def quorum(self) -> bool:
        return len(self.answers) >= self._needed

    def expects(self, result: Result) -> bool:
        """Whether this is an answer to one of the tasks."""
        return self._tasks.get(result.participant) == result.task

    def take(self, result: Result) -> Answer | Failure | None:
        """Accept a verified result; None where the participant has answered before."""
        name = result.participant
        if name in self.answers or name in self.failures:
            return None
        taken = judge(result, self._terms)
        if isinstance(taken, Answer):
            self.answers[name] = taken
        else:
            self.failures[name] = taken
        if self.complete or self.quorum or self.failures:
            self._news.set()
        return taken

    async def closed(
        self, clock: Clock, deadline: datetime, grace: float | None, *, spare: float | None = None
    ) -> None:
        """Wait until all have answered, or `grace` seconds after the quorum, or the deadline.

        Args:
            spare: where all must answer: seconds to wait on after the first who has waited for others in vain; none
                after a failure of another kind.
        """
        limit, met, broken = deadline, False, False
        while not self.complete:
            now = clock.now()
            if spare is not None and self.failures:
                if any(failure.code != IN_VAIN for failure in self.failures.values()):
                    return
                if not broken:
                    limit, broken = min(deadline, now + timedelta(seconds=spare)), True
            if self.quorum and grace is not None and not met:
                limit, met = min(deadline, now + timedelta(seconds=grace)), True
            left = (limit - now).total_seconds()
            if left <= 0:
                return
            self._news.clear()
            await first_of(self._news.wait(), clock.sleep(left))


def judge(result: Result, terms: Terms) -> Answer | Failure:
    """An answer if the result holds what the step needs, else a failure that says what is wrong. Pure."""
    if result.outcome is not Outcome.DONE:
        return Failure(
            participant=result.participant, outcome=result.outcome, code=result.code, reason=result.reason[:500]
        )
    wrong = _wrong(result, terms)
    if wrong:
        return Failure(participant=result.participant, outcome=Outcome.FAILED, code="invalid-input", reason=wrong)
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
        payload=base64.b64encode(result.payload) if result.payload and _wants_payload(terms) else None,
    )


def _wants_payload(terms: Terms) -> bool:
    """In mode pairwise a masked answer comes with a signature over the set that it was masked with."""
    return terms.kind in _WITH_PAYLOAD or (terms.masking is not None and terms.masking.mode is MaskingMode.PAIRWISE)


def _wrong(result: Result, terms: Terms) -> str:
    if terms.kind in _WITH_PAYLOAD:
        return "" if result.payload is not None else f"payload: none given, the {terms.kind.value} step needs one"
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
    if result.extras and len(result.extras) > _MOST_EXTRAS:
        return f"extras: {len(result.extras)} are more than {_MOST_EXTRAS}"
    if missing := [name for name in terms.extras if name not in (result.extras or {})]:
        return f"extras: {', '.join(missing)} is not given, which the job's algorithm needs"
    for name in terms.info:
        number = (result.info or {}).get(name)
        if number is None or not math.isfinite(number):
            return f"info.{name}: {number} is not a finite number, which the job's strategy needs"
    for update in (result.update, *(result.extras or {}).values()):
        if wrong := _wrong_update(update, terms):
            return wrong
    return ""


def _wrongly_masked(result: Result, masking: Masking) -> str:
    if result.examples or result.metrics:
        return "examples, metrics: given in clear in a masked answer; they belong in the tally"
    if result.tally is None or result.tally.key is not None or result.tally.size > INLINE_LIMIT:
        return f"tally: {result.tally} is not a small object on the update subject"
    if masking.mode is MaskingMode.PAIRWISE and result.payload is None:
        return "payload: none given, a pairwise answer needs the signature over its set of members"
    if masking.mode is not MaskingMode.COMPENSATOR:
        return ""
    if result.seed is None or result.seed.participant != result.participant:
        return "seed: none of this participant is given, the compensator needs one"
    return ""


def _wrong_update(update: ObjectRef, terms: Terms) -> str:
    if update.inline is not None:
        return "update: given inline in the result, which the coordinator may not see; send it on the update subject"
    if update.size > terms.largest:
        return f"update.size: {update.size} bytes are more than the {terms.largest} that this model allows"
    expected = f"updates/{terms.project}/{terms.run}/{update.digest}"
    if update.key is not None and update.key != expected:
        return f"update.key: {update.key!r} is not {expected!r}"
    return ""
