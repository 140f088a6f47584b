"""What a simulated site does otherwise than its datapod would: faults by name, each at the steps that a test says.

`made.let("south", silent("r1-train"))` has the site south not answer the step r1-train. A step is named as a shell
names files (`r1-*`), or by the kind of its tasks.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from hanse_fabric.bus.port import Bus
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ObjectRef, Outcome, Result, Task, TaskKind
from hanse_fabric.store.transfer import Transfer
from hanse_fabric.subjects import Door
from hanse_privacy.masks.seal import statement
from hanse_site import OpenTask, SiteIdentity, SiteLink
from hanse_site.answering import result_for
from hanse_site.incoming import ReceivedTask

Step = str | TaskKind
Changed = Mapping[str, Any] | Callable[[Task, Result, SigningKey], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to tasks and answers.

    Attributes:
        at: steps or kinds of tasks; none: all.
        instead: the site answers so at once, and does no work; None: it works.
        deaf: it does not hear of the task.
        late_s: seconds by which its answer is late.
        changed: fields of its answer that are others.
        again: fields of a second answer.
        other_bytes: one byte of its update is another than it has named.
        key: it signs with this key.
    """

    at: tuple[Step, ...]
    instead: Mapping[str, Any] | None = None
    deaf: bool = False
    late_s: float = 0.0
    changed: Changed | None = None
    again: Mapping[str, Any] | None = None
    other_bytes: bool = False
    key: SigningKey | None = None

    def hits(self, task: Task) -> bool:
        named = [
            where is task.kind if isinstance(where, TaskKind) else fnmatchcase(task.step, where) for where in self.at
        ]
        return not named or any(named)


def silent(*at: Step) -> Fault:
    """It does not answer."""
    return Fault(at, deaf=True)


def fails(*at: Step, reason: str = "diverged", code: str = "training-failed") -> Fault:
    """It says that it failed."""
    return Fault(at, instead={"outcome": Outcome.FAILED, "reason": reason, "code": code})


def refuses(*at: Step, reason: str = "not allowed here", code: str = "policy") -> Fault:
    """It says that it may not."""
    return Fault(at, instead={"outcome": Outcome.REFUSED, "reason": reason, "code": code})


def late(seconds: float, *at: Step) -> Fault:
    """It answers late."""
    return Fault(at, late_s=seconds)


def tells(*at: Step, **changed: Any) -> Fault:
    """Its answer has other fields, and its signature."""
    return Fault(at, changed=changed)


def answers_twice(*at: Step, **again: Any) -> Fault:
    """It sends another answer after the first."""
    return Fault(at, again=again)


def tampers(*at: Step) -> Fault:
    """It hands in another update than it has named."""
    return Fault(at, other_bytes=True)


def forges(*at: Step) -> Fault:
    """It signs with a key that is not the one of its enrolment."""
    return Fault(at, key=SigningKey.create())


def seals_nothing(*at: Step) -> Fault:
    """The seed that it hands in opens for nobody."""
    return Fault(at, changed=_without_seed)


def _without_seed(task: Task, result: Result, key: SigningKey) -> Mapping[str, Any]:
    assert result.seed is not None
    assert task.masking is not None
    sealed = secrets.token_bytes(len(result.seed.sealed))
    bare = result.seed.model_copy(update={"sealed": sealed, "signature": b""})
    signature = key.sign(statement(task.project, task.run, task.masking.session, bare))
    return {"seed": bare.model_copy(update={"signature": signature})}


@dataclass(slots=True)
class Conduct:
    """How a site behaves, whichever process of it is at work.

    Attributes:
        faults: of which the first that hits a task counts.
        heard: tasks that came.
        answered: results as they were sent.
    """

    faults: Sequence[Fault] = ()
    heard: list[Task] = field(default_factory=list)
    answered: list[Result] = field(default_factory=list)

    def at(self, task: Task) -> Fault:
        return next((fault for fault in self.faults if fault.hits(task)), Fault(()))

    def task_of(self, result: Result) -> Task:
        return next(task for task in reversed(self.heard) if task.id == result.task)


class SimulatedLink(SiteLink):
    """The true link of a site that behaves as it is told."""

    def __init__(self, bus: Bus, identity: SiteIdentity, transfer: Transfer, conduct: Conduct) -> None:
        super().__init__(bus, identity, transfer)
        self._conduct = conduct
        self._late: set[asyncio.Task[None]] = set()

    async def _read(self, tasks: AsyncIterator[ReceivedTask]) -> AsyncIterator[OpenTask]:
        async for opened in super()._read(tasks):
            self._conduct.heard.append(opened.task)
            fault = self._conduct.at(opened.task)
            if fault.instead is not None:
                await self.answer(result_for(opened.task, **fault.instead))
            elif not fault.deaf:
                yield opened

    async def send_update_bytes(self, task: Task, ref: ObjectRef, data: bytes, *, seconds: float = 300.0) -> None:
        if self._conduct.at(task).other_bytes:
            data = data[:-1] + bytes([data[-1] ^ 1])
        await super().send_update_bytes(task, ref, data, seconds=seconds)

    async def publish(
        self, result: Result, *, seconds: float = 300.0, headers: Mapping[str, str] | None = None
    ) -> None:
        task = self._conduct.task_of(result)
        fault = self._conduct.at(task)
        if fault.late_s:
            # Beside its work, which would be given up for the task of the next step.
            self._late.add(asyncio.create_task(self._publish(task, result, fault, headers)))
        else:
            await self._publish(task, result, fault, headers)

    async def _publish(self, task: Task, result: Result, fault: Fault, headers: Mapping[str, str] | None) -> None:
        await self.bus.clock.sleep(fault.late_s)
        key = fault.key or self.identity.signing_key
        changed = fault.changed or {}
        if changed or fault.key is not None:
            result = signed(result, key, changed(task, result, key) if callable(changed) else changed)
        self._conduct.answered.append(result)
        await super().publish(result, headers=headers)
        if fault.again is not None:
            await self._send_again(signed(result, key, fault.again))

    async def _send_again(self, result: Result) -> None:
        """As another request."""
        await self._hand_in(Door.RESULT, result.encode(), 300.0, run=result.run, step=result.step)


def signed(result: Result, key: SigningKey, changed: Mapping[str, Any]) -> Result:
    """A copy takes bytes as they are; validation would take them for base64."""
    bare = result.model_copy(update=dict(changed))
    return bare.model_copy(update={"signature": key.sign(bare.canonical(without=frozenset({"signature"})))})
