"""A hub that lies: the adversary, with the credentials of coordinator and aggregator and no others.

It asks each site whatever it likes, keeps every answer, has the compensator or the sites' peers unmask what they are
willing to, and computes with all of it. `read` of a sum is exact, as the true aggregator's.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from nats.aio.client import Client

from adversary.stage import FEATURES, Array, Stage
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.messages import Bound, Masking, MaskingMode, ObjectRef, Outcome, Result, RingPlan, Task, TaskKind
from hanse_fabric.messages.masking import MaskAnswer, MaskRequest
from hanse_fabric.names import derive_id
from hanse_fabric.subjects import (
    EXCHANGED,
    MASK_ANSWER,
    MASK_REQUEST,
    MASKS,
    PARTICIPANTS,
    RESULT,
    TASK,
    UPDATE,
)  # fmt: skip
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_learning.binding import task_seed, work_digest
from hanse_privacy.pairwise.coordination import Orders, ask_unmask, order_masks, read_adverts, share_request
from hanse_privacy.pairwise.messages import ShareRequest
from hanse_privacy.pairwise.recovering import recover
from hanse_privacy.pairwise.streams import residual_masks
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.plan import make_plan
from hanse_schemas.secure_aggregation import SecureAggregation
from overhearing import with_all_rights

PATIENCE_S = 60.0
MODEL = np.linspace(0.5, -0.5, FEATURES)
Results = dict[str, Result]
Model = Array | Mapping[str, Array]


def half_step(plan: RingPlan) -> float:
    """Half a rounding step of a plan's parameters: an update that is known to it is known exactly."""
    return 0.5 * 2.0**-plan.default.fraction


@dataclass
class LyingHub:
    """What the adversary can do. Its connections are those of the two services, with their rights and no more; `ear`
    hears all."""

    stage: Stage
    coordinator: NatsBus
    aggregator: NatsBus
    ear: Client
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    _waiting: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)

    async def hear(self, message: Any) -> None:
        """Everything that anybody says on the bus, in the project: the hub owns the bus."""
        if self.stage.project not in message.subject.split("."):
            return
        self.heard.append((message.subject, message.data))
        waiting = self._waiting.pop(message.subject, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message.data)

    async def forget_project(self) -> None:
        """Remove what the doors of a hub read from its beginning, of all projects: else each attack has read, and told
        again, what all attacks before it have left on the session's server."""
        for row in (TASK, EXCHANGED, PARTICIPANTS):
            request = json.dumps({"filter": row.wildcard(project=self.stage.project)}).encode()
            purge = f"$JS.API.STREAM.PURGE.{_stream(row).name}"
            answer = json.loads((await self.ear.request(purge, request, timeout=PATIENCE_S)).data)
            assert answer["success"], answer

    def plan(self, **settings: Any) -> RingPlan:
        """The ring plan that an honest hub would announce."""
        return make_plan(
            SecureAggregation.model_validate({"mode": "compensator", "metrics": ["loss"]} | settings),
            participants=len(self.stage.sites), weighting="uniform",
        )  # fmt: skip

    def task(
        self, site: str, step: str = "r1-train", *, kind: TaskKind = TaskKind.TRAIN, model: Model | None = None,
        mode: MaskingMode | None = MaskingMode.COMPENSATOR, session: str | None = None, plan: RingPlan | None = None,
        run: str = "", minimum: int = 3, bound: bool = True, **fields: Any,
    ) -> Task:  # fmt: skip
        """A task as the site will believe that an honest hub sent it.

        Args:
            model: (features,); None: none is sent.
            mode: of masking; None: no masking.
            session: None: the step's name.
            run: "": the stage's.
            bound: whether a masked one says what its request is bound to; a hub of release 0.1.0 does not.
            fields: of the task, which take precedence.
        """
        now, run = datetime.now(UTC), run or self.stage.run
        masking = None
        if mode is not None:
            key = base64.b64encode(self.stage.key.public_bytes) if mode is MaskingMode.COMPENSATOR else None
            masking = Masking(
                mode=mode, session=session or step, minimum=minimum, ring=plan or self.plan(), compensator=key
            )
        body: dict[str, Any] = {
            "id": derive_id(run, step, site), "project": self.stage.project, "run": run, "step": step,
            "participant": site, "workflow": "federated_averaging", "kind": kind, "round": 1, "seed": 7,
            "config": {"model": {"name": "linear"}, "train": {"steps": 1}},
            "model": None if model is None else model_ref(model), "peers": len(self.stage.sites), "issued_at": now,
            "deadline": now + timedelta(hours=1), "masking": masking,
        }  # fmt: skip
        if bound and mode in (MaskingMode.COMPENSATOR, MaskingMode.PAIRWISE):
            body |= {"bound": Bound(job="e" * 64, seed=7), "seed": task_seed(kind, 7, fields.get("round", 1), site)}
        return Task.model_validate(body | fields)

    async def ask(self, *tasks: Task) -> Results:
        """Send tasks, each to its site, and wait for their answers: by participant."""
        found = await asyncio.gather(*(self._ask(task) for task in tasks))
        return {result.participant: result for result in found}

    async def _ask(self, task: Task) -> Result:
        tokens = {"project": task.project, "run": task.run, "step": task.step, "participant": task.participant}
        # What the site has answered before is removed: the very same answer would not be written down twice.
        await self.coordinator.purge(_stream(RESULT), RESULT.of(**tokens))
        said = await self._answer(RESULT.of(**tokens), TASK.of(**tokens), task.encode())
        return Result.decode(said)

    async def _answer(self, subject: str, asked: str, question: bytes) -> bytes:
        """What is said next on `subject`, after a question."""
        answer = self._waiting[subject] = asyncio.get_running_loop().create_future()
        await self.coordinator.publish(asked, question)
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    async def said(self, subject: str) -> bytes:
        """The first message of a subject, awaited."""
        heard = [data for said, data in self.heard if said == subject]
        if heard:
            return heard[0]
        waiting = self._waiting[subject] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(PATIENCE_S):
            return await waiting

    async def close_steps(self, *tasks: Task) -> None:
        """Withdraw tasks, as when a step closes."""
        for task in tasks:
            tokens = {"project": task.project, "run": task.run, "step": task.step, "participant": task.participant}
            await self.coordinator.purge(_stream(TASK), TASK.of(**tokens))

    async def update(self, result: Result) -> Any:
        """The elements of a site's (masked) update, as the aggregator reads them; plain floats without masks."""
        data = await self.file(result, result.update)
        return np.concatenate([entry.reshape(-1) for entry in decode_tensors(data)[1].values()])

    async def tally(self, result: Result) -> Any:
        """The elements of a site's (masked) tally."""
        return decode_tensors(await self.file(result, result.tally))[1]["tally"]

    async def file(self, result: Result, ref: ObjectRef | None) -> bytes:
        assert ref is not None, f"{result.participant}: {result.outcome} {result.reason}"
        tokens = {"project": result.project, "run": result.run, "participant": result.participant}
        record = await self.aggregator.last(_stream(UPDATE), UPDATE.of(**tokens, digest=ref.digest))
        assert record is not None
        return record.data

    async def ask_masks(self, results: Results, session: str, *, run: str = "") -> MaskAnswer:
        """Ask the compensator for the sum of the masks of these answers."""
        run = run or self.stage.run
        members = tuple(result.seed for _, result in sorted(results.items()) if result.seed is not None)
        request = MaskRequest(project=self.stage.project, run=run, session=session, members=members)
        tokens = {"project": self.stage.project, "run": run, "session": session}
        said = await self._answer(MASK_ANSWER.of(**tokens), MASK_REQUEST.of(**tokens), request.encode())
        return MaskAnswer.decode(said)

    async def masks(self, answer: MaskAnswer) -> Any:
        """The sum of the update's masks that the compensator made: uint32 or uint64 elements."""
        assert answer.sum is not None, answer.reason
        assert answer.sum.update is not None
        tokens = {"project": answer.project, "run": answer.run, "session": answer.session}
        record = await self.aggregator.last(_stream(MASKS), MASKS.of(**tokens, digest=answer.sum.update.digest))
        assert record is not None
        arrays = decode_tensors(record.data)[1]
        return arrays["u32"] if arrays["u32"].size else arrays["u64"]

    async def tally_masks(self, answer: MaskAnswer) -> bytes:
        """The file of the sum of the tallies' masks that the compensator made."""
        assert answer.sum is not None, answer.reason
        tokens = {"project": answer.project, "run": answer.run, "session": answer.session}
        record = await self.aggregator.last(_stream(MASKS), MASKS.of(**tokens, digest=answer.sum.tally.digest))
        assert record is not None
        return record.data

    async def sum(self, results: Results, session: str, plan: RingPlan, *, run: str = "") -> Array:
        """The sum of the members' plain updates, if the compensator makes one of their masks."""
        masks = await self.masks(await self.ask_masks(results, session, run=run))
        return decode(await self.total(results) - masks, plan.default)

    async def total(self, results: Results) -> Any:
        """The sum of the masked updates, as ring elements."""
        updates = [await self.update(result) for _, result in sorted(results.items())]
        return np.sum(updates, axis=0, dtype=updates[0].dtype)

    # Mode pairwise: each step is the hub's to ask of whom it likes, with what it likes.

    async def adverts(self, names: Iterable[str], *, run: str = "") -> Results:
        """Everybody's keys for a run."""
        return await self.ask(
            *(
                self.task(name, "advertise", kind=TaskKind.ADVERTISE, mode=MaskingMode.PAIRWISE, run=run)
                for name in names
            )
        )

    def share_request(
        self, adverts: Results, session: str, *, threshold: int | None = None, minimum: int = 3, run: str = "",
        work: bytes | None = None,
    ) -> ShareRequest:  # fmt: skip
        """What opens a session among those who advertised, to train `MODEL` unless `work` says otherwise."""
        run = run or self.stage.run
        work = work or work_digest(self.task(self.stage.names[0], model=MODEL))
        identities = {name: site.identity.signing_key.public_bytes for name, site in self.stage.sites.items()}
        read = read_adverts(self.stage.project, run, identities, payloads(adverts))
        return share_request(
            self.stage.project, run, session, read.members, threshold=threshold, minimum=minimum,
            roster=identities.values(), work=work,
        )  # fmt: skip

    async def shared(self, request: ShareRequest, names: Iterable[str] | None = None) -> Orders:
        """SHARE, answered by `names`, and what each is to mask with."""
        asked = request.names if names is None else names
        answers = await self.ask(*(self.protocol(name, TaskKind.SHARE, request, request.encode()) for name in asked))
        return order_masks(request, payloads(answers))

    def protocol(self, name: str, kind: TaskKind, request: ShareRequest, payload: bytes) -> Task:
        """A step of the protocol for one site, which no data are needed for."""
        return self.task(
            name, f"{request.session}-{kind.value}", kind=kind, mode=MaskingMode.PAIRWISE, session=request.session,
            run=request.run, payload=base64.b64encode(payload),
        )  # fmt: skip

    async def unmasked(
        self, request: ShareRequest, orders: Orders, results: Results, plan: RingPlan, *,
        names: Iterable[str] | None = None,
    ) -> Array | None:  # fmt: skip
        """The sum of these answers, if enough of `names` (None: all in the sum) reveal what unmasks it."""
        asked = ask_unmask(request, orders.members, payloads(results))
        chosen = asked.survivors if names is None else names
        told = await self.ask(*(self.protocol(name, TaskKind.UNMASK, request, asked.payload) for name in chosen))
        recovered = recover(request, orders.answers, asked.survivors, payloads(told), asked.asked)
        if recovered.recovery is None:
            return None
        total = await self.total({name: results[name] for name in asked.survivors})
        residual_masks(recovered.recovery).apply(total, 0)
        return decode(total, plan.default)


def payloads(results: Mapping[str, Result]) -> dict[str, bytes]:
    """What those who did as they were asked said."""
    return {
        name: result.payload
        for name, result in results.items()
        if result.outcome is Outcome.DONE and result.payload is not None
    }


def model_ref(model: Model) -> ObjectRef:
    """A model as a task carries it: entries by name, or the one entry of those who train by `stage.Regression`."""
    given = model if isinstance(model, Mapping) else {"weight": model}
    arrays = {name: np.asarray(entry, np.float32) for name, entry in given.items()}
    return ref_of_bytes(encode_tensors(layout_like(arrays), arrays), inline=True)


def refusals(results: Mapping[str, Result]) -> dict[str, str]:
    """Who did not do what it was asked, and why."""
    return {name: result.reason for name, result in results.items() if result.outcome is not Outcome.DONE}


@asynccontextmanager
async def lying_hub(stage: Stage) -> AsyncIterator[LyingHub]:
    """The adversary on the bus of a stage whose doors are open."""
    server = stage.server
    ear = await with_all_rights(server.url, server.authority.folder)
    made = LyingHub(stage, stage.coordinator, stage.aggregator, ear)
    for subjects in ("hanse.>", "$KV.>"):
        await ear.subscribe(subjects, cb=made.hear)
    await ear.flush()
    try:
        yield made
    finally:
        await made.forget_project()
        await ear.close()


def _stream(row: Any) -> Any:
    assert row.stream is not None
    return row.stream
