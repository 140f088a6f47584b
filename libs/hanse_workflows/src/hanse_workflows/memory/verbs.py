"""The adapter of `Verbs` for one process: outcomes are kept in a mapping, sites and reductions are called."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import (
    Compensators,
    JobKind,
    Lineage,
    MaskAnswer,
    ObjectRef,
    Outcome,
    Reduced,
    ReduceJob,
    Result,
    SealedSeed,
    StudyJob,
    Task,
)
from hanse_fabric.messages.explained import explain
from hanse_fabric.tensors.file import own_header
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_reduction.engine import Engine
from hanse_reduction.study import run_study
from hanse_schemas.job import Job
from hanse_workflows.answers import WITH_PAYLOAD, Terms, judge
from hanse_workflows.ask import Ask
from hanse_workflows.attendance import refuse_strangers
from hanse_workflows.failures import RunFailure, outcome_of, require_finite
from hanse_workflows.fingerprint import fingerprint, short
from hanse_workflows.keys import UsedKeys
from hanse_workflows.memory.journal import Journal
from hanse_workflows.memory.sites import Made, MemorySite, in_ring
from hanse_workflows.outcomes import Answer, Failure, Gathered, Published
from hanse_workflows.quorum import too_few_present
from hanse_workflows.verbs import Body

PROJECT, RUN = "memory", "memory000000"
_LARGEST_UPDATE = 1 << 40
_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""Nothing has a deadline here: every site is asked and answers, or fails."""

Told = Callable[[str, int, Mapping[str, Any]], None]
"""Is told news: kind, round, data."""
OnVersion = Callable[[bytes, Lineage], None]
"""Is given each version: bytes of the model's tensor file, and where it came from."""


class MemoryVerbs:
    """`Verbs` of a run in this process.

    Args: as of `conduct`.
    """

    def __init__(
        self,
        job: Job,
        sites: Mapping[str, MemorySite],
        journal: Journal,
        *,
        initial: bytes | None = None,
        told: Told = lambda _kind, _round, _data: None,
        published: OnVersion = lambda _model, _lineage: None,
        secret: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.project, self.run, self.job = PROJECT, RUN, job
        self.binds = self.of_first_release = self.leaves = False
        self._sites = dict(sorted(sites.items()))
        self._outcomes, self._objects = journal.outcomes, journal.objects
        self._initial, self._told, self._published, self._secret = initial, told, published, secret
        self._engine = Engine(self._objects.store, threads=1)
        self._keys = UsedKeys()
        self.versions: list[tuple[ObjectRef, Lineage, dict[str, float]]] = []
        self.outputs: dict[str, ObjectRef] = {}
        self._going: list[ObjectRef] = []

    async def once(
        self,
        key: str,
        asked: Mapping[str, Any],
        do: Callable[[], Awaitable[Body]],
        *,
        covers: tuple[str, ...] = (),  # noqa: ARG002 - nothing is left behind here
        beside: int = 1,  # noqa: ARG002
    ) -> Body:
        mark = fingerprint(asked)
        recorded = self._outcomes.get(key)
        self._keys.use(key, mark, None if recorded is None else recorded[0])
        if recorded is not None:
            return recorded[1]
        body = await outcome_of(key, do)
        self._outcomes[key] = mark, body
        return body

    async def participants(self, key: str) -> tuple[str, ...]:
        """See `Verbs.participants`. All sites are there."""

        async def look() -> Body:
            if len(self._sites) < self.job.participants.minimum:
                raise too_few_present(tuple(self._sites), self.job.participants)
            return {"present": list(self._sites)}

        return tuple((await self.once(key, {"participants": 1}, look))["present"])

    async def ask(self, key: str, ask: Ask) -> Gathered:
        if ask.payload is not None or ask.kind in WITH_PAYLOAD:
            raise RunFailure(
                ErrorCode.INVALID_INPUT,
                f"step {key}: sites exchange keys or noise in it, which a run in memory does not",
                hint="run the job on a hub, or in the simulation",
            )

        async def do() -> Body:
            refuse_strangers(key, [name for name in ask.missing if name not in self._sites])
            common = ask.task(self.project, self.run, self.job.workflow, key, _NO_TIME, _NO_TIME)
            tasks = [common.model_copy(update=ask.own(self.run, key, name)) for name in ask.missing]
            terms = Terms.of(ask, self.project, self.run, _LARGEST_UPDATE)
            if ask.exchange:
                with ThreadPoolExecutor(max(1, len(tasks)), "site") as pool:
                    taken = [*pool.map(lambda task: self._answer(task, terms), tasks)]
            else:
                taken = [self._answer(task, terms) for task in tasks]
            fresh.append(ask.gathered(taken))
            return fresh[0].body()

        fresh: list[Gathered] = []
        body = await self.once(key, ask.question(self.project, self.run, self.job.workflow), do)
        return fresh[0] if fresh else Gathered.of(body)

    def _answer(self, task: Task, terms: Terms) -> Answer | Failure:
        """What a site answers, as it would count on a hub."""
        given = {name: self._objects.read(ref) for name, ref in (task.extras or {}).items()}
        if task.model is not None:
            given["model"] = self._objects.read(task.model)
        try:
            result = self._result(task, self._sites[task.participant].work(task, given))
        except ValidationError as wrong:
            return Failure(
                participant=task.participant, outcome=Outcome.FAILED, code=ErrorCode.INVALID_INPUT.code,
                reason=explain(wrong)[:500],
            )  # fmt: skip
        except HanseError as error:
            outcome = Outcome.REFUSED if error.code is ErrorCode.POLICY else Outcome.FAILED
            return Failure(participant=task.participant, outcome=outcome, code=error.code.code, reason=str(error)[:500])
        return judge(result, terms)

    def _result(self, task: Task, made: Made) -> Result:
        common: dict[str, Any] = {
            "task": task.id, "project": self.project, "run": self.run, "step": task.step,
            "participant": task.participant, "outcome": Outcome.DONE, "code_digest": made.code_digest,
        }  # fmt: skip
        if task.masking is not None:
            update, tally = in_ring(task.masking, made)
            common["tally"] = self._objects.add(tally)
        else:
            update = made.update
            common |= {"examples": made.examples, "metrics": dict(made.metrics), "info": dict(made.info) or None}
            common["counted"] = made.counted or None
            common["extras"] = {name: self._objects.add(data) for name, data in made.extras.items()} or None
        return Result(update=None if update is None else self._objects.add(update), **common)

    async def enrolled(self, key: str) -> dict[str, bytes]:
        """See `Verbs.enrolled`. Nobody has a key here."""
        return {name: bytes.fromhex(value) for name, value in (await self.once(key, {"enrolled": 1}, _nothing)).items()}

    async def compensator(self) -> bytes:
        """See `Verbs.compensator`. There is none: masks of this process would hide nothing from it."""
        raise _not_here("a compensator")

    async def compensators(self, key: str, names: tuple[str, ...], needed: int) -> Compensators:  # noqa: ARG002
        """See `Verbs.compensators`."""
        raise _not_here("compensators")

    async def initial_model(self, digest: str) -> ObjectRef:
        if self._initial is None:
            raise RunFailure(ErrorCode.NOT_FOUND, f"initial_model: no bytes are given for {digest}")
        ref = ref_of_bytes(self._initial)
        if ref.digest != digest:
            raise RunFailure(ErrorCode.TAMPERED, f"initial_model: the given bytes are not those of {digest}")
        data, given = self._initial, self._initial
        found = own_header(len(given), lambda offset, length: given[offset : offset + length])
        if found is not None:  # a hub writes it anew, too
            header, start = found
            data = header + given[start:]
            ref = ref_of_bytes(data)
        ref = ref.model_copy(update={"key": f"models/{PROJECT}/{ref.digest}"})
        self._objects.store.put(f"models/{PROJECT}/{ref.digest}", data)  # where reductions look for models
        return ref

    async def publish(
        self,
        key: str,
        *,
        model: ObjectRef,
        lineage: Lineage,
        metrics: dict[str, float],
        final: bool,
        best: bool = False,
    ) -> None:
        """See `Verbs.publish`. A version is listed in `versions`."""

        async def store() -> Body:
            self._published(self._objects.read(model), lineage)
            return Published(version=len(self.versions) + 1, digest=model.digest).body()

        marked = {"final": final} | ({"best": best} if best else {})
        asked = {"model": model, "lineage": lineage, "metrics": metrics} | marked
        await self.once(key, asked, store)
        self.leaves = True
        self.versions.append((model, lineage, metrics))

    async def combine(self, key: str, asked: Mapping[str, Any], job: ReduceJob | StudyJob) -> Reduced:
        """See `Verbs.combine`. By the engine of the aggregators."""
        name = f"{key}-{short(fingerprint(asked))}"
        named = job.model_copy(update={"id": name, "output_key": f"models/{PROJECT}/{RUN}/{name}"})
        fetched, tallies = self._objects.sent(job.updates)
        if isinstance(named, StudyJob):
            reduced = run_study(named, self._objects.store, fetched, tallies)
        else:
            reduced = self._engine.run(named, {} if named.kind is JobKind.TALLY else fetched, tallies)
        if reduced.error:
            code = ErrorCode.of(reduced.code) if reduced.code else ErrorCode.INTERNAL
            raise RunFailure(code, f"reduction {key}: {reduced.error}")
        return reduced

    async def mask_sum(
        self,
        session: str,  # noqa: ARG002
        round: int,  # noqa: A002, ARG002
        members: tuple[SealedSeed, ...],  # noqa: ARG002
        compensators: Compensators | None = None,  # noqa: ARG002
    ) -> MaskAnswer:
        raise _not_here("a compensator")

    async def payloads(self, key: str, gathered: Gathered) -> dict[str, bytes]:  # noqa: ARG002
        return {each.participant: each.payload for each in gathered.answers if each.payload is not None}

    def release(self, key: str) -> None:
        """See `Verbs.release`. Nothing is kept."""

    def secret(self, count: int) -> bytes:
        return self._secret(count)

    def forget(self, objects: Iterable[ObjectRef]) -> None:
        """See `Verbs.forget`. Of the versions, no registry keeps any here: the newest alone stays, for the caller."""
        newest = self.versions[-1][0] if self.versions else None
        going = {(ref.digest, ref.key): ref for ref in (*self._going, *objects)}
        kept = None if newest is None else going.pop((newest.digest, newest.key), None)
        self._going = [] if kept is None else [kept]
        self._objects.forget(going.values())

    async def keep(self, outputs: Mapping[str, ObjectRef]) -> None:
        self.outputs, self.leaves = dict(outputs), True

    def note(self, kind: str, about: str, *, round: int, **data: Any) -> None:  # noqa: A002
        require_finite(f"{kind} {about}", data)
        self._told(kind, round, data)

    def audit(self, action: str, about: str, **detail: Any) -> None:
        """See `Verbs.audit`. Nobody else decides here."""
        require_finite(f"{action} {about}", detail)

    def refused(self, step: str, round_number: int, reduced: Reduced) -> None:
        for refusal in reduced.refused:
            self._told("refused", round_number, {"step": step, **refusal.model_dump()})

    @contextmanager
    def phase(self, name: str, key: str) -> Iterator[None]:  # noqa: ARG002
        yield

    @contextmanager
    def round(self, number: int) -> Iterator[None]:  # noqa: ARG002
        yield


async def _nothing() -> Body:
    return {}


def _not_here(what: str) -> RunFailure:
    return RunFailure(ErrorCode.INVALID_INPUT, f"{what}: there is none in memory", hint="run the job on a hub")
