"""The models that sites are sent, in fewer bytes where the job says so (`codec.down`); the hub's own stay as they are.

With `delta` in the chain, tasks name ways to the model from the ones before it, too. A site that holds one of these
goes that way; one that was away, or has lost what it had, fetches the whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hanse_fabric.messages import Delta, JobKind, ObjectRef, ReduceJob, Task
from hanse_fabric.messages.objects import MOST_DELTAS
from hanse_fabric.messages.reduction_jobs import BASE, DELTA, ENCODED
from hanse_learning.codecs.config import split_down
from hanse_learning.server.config.foreign import codec_digests
from hanse_workflows.ask import Ask
from hanse_workflows.fingerprint import StepQuestion
from hanse_workflows.verbs import Body, Verbs

MODEL_SIZE = "model_size"
"""Under which the codecs of a task tell the bytes of the decoded model."""

_Sections = tuple[dict[str, Any], ...]


class Carrier:
    """Of one run, the newest model as it travels, and the ways to it. It follows from what is recorded, so that a run
    that is replayed carries the same."""

    def __init__(self) -> None:
        self._model = ""  # whose digest, of the hub's own
        self._travels: ObjectRef | None = None
        self._deltas: tuple[Delta, ...] = ()
        self._sent: dict[str, str] = {}  # by participant, the digest of what it was sent last
        self._passed: list[ObjectRef] = []

    async def carrying(self, run: Verbs, key: str, ask: Ask) -> Ask:
        """The same ask, with its model as it travels. The same model is encoded in the same bytes, so that a site which
        has them need not fetch them again.

        Raises:
            RunFailure: TIMEOUT when no aggregator answers.
        """
        codec, model = run.job.codec, ask.model
        if codec is None or not codec.down or model is None:
            return ask
        form, way = split_down(codec.down)
        if model.digest != self._model:
            travels = await _encoded(run, key, ask.round, model, form) if form else model
            if way:
                await self._lead(run, f"{key}-delta", ask.round, travels, way)
            self._model, self._travels = model.digest, travels
        if form:
            told = {**ask.config["codec"], "down": list(form), MODEL_SIZE: model.size}
            ask = replace(ask, encoded=self._travels, config={**ask.config, "codec": told})
        elif "codec" in ask.config:
            ask = replace(ask, config={**ask.config, "codec": {**ask.config["codec"], "down": []}})
        return replace(ask, deltas=self._deltas, shorter=self._shorter(ask)) if way else ask

    @property
    def held(self) -> tuple[ObjectRef, ...]:
        """What is needed as long as tasks may name this model, or the next is led to from it."""
        return (*((self._travels,) if self._travels is not None else ()), *(delta.ref for delta in self._deltas))

    def passed(self) -> tuple[ObjectRef, ...]:
        """What no task will name again, once."""
        passed, self._passed = tuple(self._passed), []
        return passed

    async def _lead(self, run: Verbs, key: str, round_number: int, travels: ObjectRef, way: _Sections) -> None:
        """Have a way made from the model before to this one. Small models are in their tasks, and need none."""
        base = self._travels
        if base is None or base.digest == travels.digest:
            return
        made: tuple[Delta, ...] = ()
        if base.key is not None and travels.key is not None and base.size == travels.size:
            delta = await _delta(run, key, round_number, base, travels, way)
            if delta.ref.size < travels.size:
                made = (*self._deltas, delta)[-MOST_DELTAS:]
        self._passed += [base, *(each.ref for each in self._deltas if each not in made)]
        self._deltas = made

    def _shorter(self, ask: Ask) -> dict[str, int]:
        """Bytes of the way to the model of those who were sent an older one, or this one, where the way is shorter."""
        assert self._travels is not None  # noqa: S101
        costs, cost = {self._travels.digest: 0}, 0
        for delta in reversed(self._deltas):
            cost += delta.ref.size
            if cost < self._travels.size:
                costs[delta.base] = cost
        found = {name: costs[sent] for name in ask.to if (sent := self._sent.get(name)) in costs}
        self._sent |= dict.fromkeys(ask.to, self._travels.digest)
        return found


async def _encoded(run: Verbs, key: str, round_number: int, model: ObjectRef, codec: _Sections) -> ObjectRef:
    down = () if run.job.codec is None else run.job.codec.down
    job = _job(run, key, round_number, JobKind.ENCODE, model, codec).model_copy(
        update={"codec_digests": codec_digests(down)}
    )
    asked = StepQuestion({"encode": model, "codec": job.codec, "codec_plugins": job.codec_digests})
    return await _made(run, key, asked, job, ENCODED)


async def _delta(
    run: Verbs, key: str, round_number: int, base: ObjectRef, travels: ObjectRef, codec: _Sections
) -> Delta:  # fmt: skip
    job = _job(run, key, round_number, JobKind.DELTA, travels, codec).model_copy(update={"state": {BASE: base}})
    made = await _made(run, key, StepQuestion({"delta": travels, "base": base, "codec": codec}), job, DELTA)
    return Delta(base=base.digest, makes=travels.digest, ref=made)


def _job(run: Verbs, key: str, round_number: int, kind: JobKind, model: ObjectRef, codec: _Sections) -> ReduceJob:
    return ReduceJob(
        id=key, project=run.project, run=run.run, step=key, kind=kind, round=round_number, strategy={}, updates=(),
        model=model, output_key=key, codec=codec,
    )  # fmt: skip


async def _made(run: Verbs, key: str, asked: StepQuestion, job: ReduceJob, output: str) -> ObjectRef:
    async def do() -> Body:
        reduced = await run.combine(key, asked, job)
        return reduced.outputs[output].model_dump(mode="json")

    return ObjectRef.model_validate(await run.once(key, asked, do))


def model_of(task: Task) -> ObjectRef | None:
    """The size, as a reference, of the model that a task's answer is an update to."""
    codec = task.config.get("codec")
    if task.model is None or not codec or MODEL_SIZE not in codec:
        return task.model
    return task.model.model_copy(update={"size": codec[MODEL_SIZE]})
