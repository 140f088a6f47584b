"""The link between a participant and its hub: tasks come in, updates and signed results go out.

What it sends is idempotent (updates by content, results by task), so everything may be sent again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hanse_fabric import __version__
from hanse_fabric.bus.issuing import region_of
from hanse_fabric.bus.port import HEARTBEAT_S, Bus, Headers
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.doors.asking import Doors
from hanse_fabric.durable import space_errors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import (
    INLINE_LIMIT,
    BudgetTold,
    Delta,
    ObjectRef,
    Outcome,
    Presence,
    Progress,
    Result,
    Task,
    TaskKind,
)
from hanse_fabric.messages.doors import BESIDE, OpenTasks
from hanse_fabric.messages.objects import MOST_DELTAS, update_key
from hanse_fabric.messages.tasks import SLOWEST_PACE_S
from hanse_fabric.names import HUB_REGION
from hanse_fabric.store.file_upload import FileUpload
from hanse_fabric.store.transfer import Came
from hanse_fabric.strict_json import parse_json
from hanse_fabric.subjects import Door
from hanse_fabric.telemetry.catalogue import SITE_BYTES
from hanse_fabric.tensors.digest import digest_file
from hanse_site.cache import KEPT, ModelCache, Rebuild
from hanse_site.identity import SiteIdentity
from hanse_site.incoming import Given, Incoming
from hanse_site.remote import ask_link, ask_upload
from hanse_site.renewal import current_token, keep_renewed

if TYPE_CHECKING:
    from hanse_fabric.store.transfer import Transfer

T = TypeVar("T")
OBJECTS_KEPT = 24
"""Objects of studies: several steps are under way at once, each with a few."""
RECEIVED = ("cache", "extras", "objects")
"""Folders of a home, of what was fetched: models, what algorithms need beside them, and objects of studies."""
DELTAS = "deltas"
"""Folder of a home, of what leads to a model from the one before, until it has."""
Applied = Callable[[Path, Path, Path], tuple[str, tuple[str, ...]]]
"""Makes of a file, by a delta, a third, and returns its digest and leaves. Blocks."""
FRESH_S = 5.0
_QUICKEST_PACE_S = 10.0
"""Whatever a hub asks for: every sign of life is a line of the log of what left."""
"""A task that came so recently is open."""
_LOG = logging.getLogger(__name__)
_RETRIED = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT})


@dataclass(frozen=True, slots=True)
class OpenTask:
    """A task as it was found.

    Attributes:
        headers: of the bus message; they carry the trace.
        pending: how many more open tasks are on their way; 0 means caught up.
        received: its arrival, on the monotonic face of `clock`.
    """

    task: Task
    headers: Mapping[str, str]
    pending: int
    received: float
    clock: Clock = SYSTEM_CLOCK

    @property
    def fresh(self) -> bool:
        """Whether it has only just come."""
        return self.clock.monotonic() - self.received < FRESH_S

    @property
    def seconds_left(self) -> float:
        """Until the deadline, counted on this machine's own clock from the arrival: clocks need not agree."""
        whole = (self.task.deadline - self.task.issued_at).total_seconds()
        return whole - (self.clock.monotonic() - self.received)


class SiteLink:
    """An enrolled participant's connection to its hub.

    Attributes:
        pace: seconds between signs of life.
    """

    def __init__(self, bus: Bus, identity: SiteIdentity, transfer: Transfer, *, region: str = HUB_REGION) -> None:
        """`region`: whose account its token is of."""
        self.bus = bus
        self.identity = identity
        self.pace = SLOWEST_PACE_S
        self.doors = Doors(bus, identity.project, identity.participant, identity.signing_key, region)
        self._incoming = Incoming(self.doors)
        self._renewing: asyncio.Task[None] | None = None
        self._transfer = transfer
        models, extras, objects = (identity.home / name for name in RECEIVED)
        self._cache, self._extras = ModelCache(models), ModelCache(extras)
        self._objects = ModelCache(objects, kept=OBJECTS_KEPT)
        self._deltas = ModelCache(identity.home / DELTAS, kept=MOST_DELTAS)

    @classmethod
    async def connect(
        cls,
        identity: SiteIdentity,
        *,
        cert: Path | None = None,
        key: Path | None = None,
        heartbeat: float = HEARTBEAT_S,
    ) -> SiteLink:
        """Connect to the hub's bus with the identity's own credentials and inbox.

        Args:
            cert, key: PEM files for mutual TLS, where the hub asks for it; None: those in the identity's home, if any.
            heartbeat: seconds between signs of life of what is followed (`NatsBus.connect`).

        Raises:
            HanseError: UNAVAILABLE, UNAUTHENTICATED (revoked), or FORBIDDEN.
        """
        from hanse_fabric.bus.nats import NatsBus
        from hanse_fabric.store.transfer import HttpTransfer

        token = await current_token(identity)
        bus = await NatsBus.connect(
            identity.record.bus_url,
            f"{identity.project}.{identity.participant}",
            creds=identity.creds,
            inbox_prefix=identity.inbox_prefix,
            ca=identity.bus_ca,
            cert=cert or identity.bus_cert,
            key=key or identity.bus_key,
            heartbeat=heartbeat,
        )
        link = cls(bus, identity, HttpTransfer(ca=identity.store_ca), region=region_of(token) or HUB_REGION)
        link._renewing = asyncio.create_task(keep_renewed(bus, link.doors, identity, token))
        return link

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self.bus.close()

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[AsyncIterator[OpenTask]]:
        """Every task that is open now, then those that open: in order, once each, across reconnections."""
        async with self._incoming.open() as given:
            yield self._read(given)

    async def _read(self, tasks: AsyncIterator[Given]) -> AsyncIterator[OpenTask]:
        async for given in tasks:
            try:
                task = self._check(given, Task.decode(given.data))
            except HanseError as error:
                await self._answer_unreadable(given, error)
                continue
            clock = self.bus.clock
            yield OpenTask(task, given.headers, given.pending, clock.monotonic(), clock)

    def _check(self, given: Given, task: Task) -> Task:
        said = f"{task.run}.{task.step}.{given.sequence}"
        whose = (task.project, task.participant)
        if said != given.mark or whose != (self.identity.project, self.identity.participant):
            raise HanseError(
                ErrorCode.TAMPERED, f"task {task.id}: it says {whose} and {said}, but came as {given.mark}"
            )
        return task

    async def _answer_unreadable(self, given: Given, error: HanseError) -> None:
        """A task that this release cannot read is refused, so that the owner sees why; without an id it is left."""
        with suppress(HanseError, ValueError, KeyError, TypeError):
            run, step, _ = given.mark.split(".")
            result = Result(
                task=parse_json(given.data, "task")["id"],
                project=self.identity.project,
                run=run,
                step=step,
                participant=self.identity.participant,
                outcome=Outcome.REFUSED,
                reason=str(error)[:2000],
                code=error.code.code,
            )
            await self.publish(self.sign(result))

    async def is_open(self, task: Task) -> bool:
        """Whether the hub still waits for an answer to this step."""
        return bool(OpenTasks.decode(await self.doors.ask(Door.TASKS, run=task.run, step=task.step)).open)

    def to_fetch(self, task: Task) -> tuple[ObjectRef, ...]:
        """What leads to the task's model from one that is here; or the model."""
        ways = tuple(delta.ref for delta in self._way(task))
        return ways or (() if task.model is None else (task.model,))

    async def fetch(
        self, task: Task, *, seconds: float = 300.0, apply: Applied | None = None,
        whole: Callable[[], Awaitable[None]] | None = None,
    ) -> Path | None:  # fmt: skip
        """The task's model as a file, verified against its digest; None where the task has none.

        The file is in a cache and must not be changed; it stays while the newest few models are kept.

        Args:
            apply: applies a delta; with it, a model is made of an older one that is here, where the task names a way.
            whole: is called before the whole model is fetched after all, where that was tried.

        Raises:
            HanseError: TAMPERED, NO_SPACE, TOO_LARGE, or UNAVAILABLE when `seconds` passed without success.
        """
        if task.model is None:
            return None
        way = () if apply is None else self._way(task)
        if apply is None or not way:
            return await self._fetch(task, "model", task.model, self._cache, seconds)
        try:
            return await self._fetch(
                task, "model", task.model, self._cache, seconds,
                rebuild=lambda path: self._rebuild(task, way, apply, path, seconds), whole=whole,
            )  # fmt: skip
        finally:
            await asyncio.to_thread(self._deltas.clear)

    def _way(self, task: Task) -> tuple[Delta, ...]:
        """The deltas by which the task's model is made of one that is here; none where there is no such way, or where
        the model itself is here, or no larger."""
        model = task.model
        if model is None or not task.deltas or model.inline is not None or self._cache.has(model.digest):
            return ()
        makes, found = {delta.makes: delta for delta in task.deltas}, list[Delta]()
        while (delta := makes.pop(found[0].base if found else model.digest, None)) is not None:
            found.insert(0, delta)
            if sum(each.ref.size for each in found) >= model.size:
                return ()
            if self._cache.has(delta.base):
                return tuple(found)
        return ()

    async def _rebuild(self, task: Task, way: tuple[Delta, ...], apply: Applied, path: Path, seconds: float) -> None:
        """Make the model of one that is here."""
        base, made = await self._cache.find(way[0].base), path
        for number, delta in enumerate(way):
            file = await self._fetch(task, f"deltas.{number}", delta.ref, self._deltas, seconds)
            made = path if delta is way[-1] else path.with_name(f"{path.name}.{number}")
            try:
                with space_errors(path.parent):
                    digest, _ = await asyncio.to_thread(apply, base, file, made)
            finally:
                if number:
                    base.unlink(missing_ok=True)
            if digest != delta.makes:
                made.unlink(missing_ok=True)
                raise HanseError(
                    ErrorCode.TAMPERED, f"delta {delta.ref.digest}: it makes {digest}, {delta.makes} was announced"
                )
            base = made

    async def fetch_extras(self, task: Task, *, seconds: float = 300.0) -> dict[str, Path]:
        """What the algorithm needs beside the model, as files by name; as `fetch`.

        Raises:
            HanseError: as `fetch`; INVALID_INPUT for more than are kept.
        """
        extras = task.extras or {}
        study = task.kind is TaskKind.STUDY
        cache, most = (self._objects, OBJECTS_KEPT // 3) if study else (self._extras, KEPT)
        if len(extras) > most:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"task {task.id}.extras: {len(extras)} are more than {most}",
                hint="upgrade the datapod",
            )  # fmt: skip
        return {name: await self._fetch(task, f"extras.{name}", ref, cache, seconds) for name, ref in extras.items()}

    async def _fetch(
        self, task: Task, what: str, ref: ObjectRef, cache: ModelCache, seconds: float, *,
        rebuild: Rebuild | None = None, whole: Callable[[], Awaitable[None]] | None = None,
    ) -> Path:  # fmt: skip
        async def download(path: Path, came: Came) -> None:
            if whole is not None and not told:
                told.append(ref)
                await whole()
            if ref.key is None:
                raise HanseError(ErrorCode.INVALID_INPUT, f"task {task.id}.{what}: neither inline nor in the store")
            before = came.bytes
            if before == ref.size:
                return
            link = await ask_link(self.doors, task, ref.key)
            try:
                await asyncio.to_thread(self._transfer.fetch, link.url, path, limit=ref.size, came=came)
            finally:
                SITE_BYTES.add(max(came.bytes - before, 0), direction="down", carrier="store")

        told = list[ObjectRef]()
        if ref.inline is not None:
            SITE_BYTES.add(ref.size, direction="down", carrier="bus")
        return await cache.get(
            ref, lambda path, came: keep_trying(lambda: download(path, came), seconds, self.bus.clock), rebuild
        )  # fmt: skip

    def update_ref(self, task: Task, path: Path, *, digested: tuple[str, tuple[str, ...]] | None = None) -> ObjectRef:
        """Name an update: by content, and by the place where `send_update` will put it.

        Args:
            digested: (digest, leaves), from whoever hashed the file while writing it; None: the file is read once.
        """
        digest, leaves = digest_file(path) if digested is None else digested
        size = path.stat().st_size
        place = update_key(task.project, task.run, task.participant, task.id, digest)
        key = place if size > INLINE_LIMIT else None
        return ObjectRef(digest=digest, size=size, leaves=leaves, key=key)

    async def send_update(
        self, task: Task, path: Path, *, ref: ObjectRef | None = None, seconds: float = 300.0
    ) -> ObjectRef:
        """Put an update where the aggregators find it: on the bus up to INLINE_LIMIT bytes, else in the store.

        Raises:
            HanseError: UNAVAILABLE when `seconds` passed without success; what the hub answered, if it refused.
        """
        named: ObjectRef = ref if ref is not None else await asyncio.to_thread(self.update_ref, task, path)
        if named.key is None:
            await self.send_update_bytes(task, named, await asyncio.to_thread(path.read_bytes), seconds=seconds)
            return named

        upload = FileUpload(self._transfer, path, named, notes=path.with_name(f".{path.name}.sent"))

        async def go_on() -> None:
            key = await upload.run(lambda step: ask_upload(self.doors, task, named, step))
            if key != named.key:
                raise HanseError(ErrorCode.CONFLICT, f"upload: it went to {key}, {named.key} was asked for")
            SITE_BYTES.add(named.size, direction="up", carrier="store")

        await keep_trying(go_on, seconds, self.bus.clock)
        return named

    async def send_update_bytes(self, task: Task, ref: ObjectRef, data: bytes, *, seconds: float = 300.0) -> None:
        """Hand in a small update."""
        await self._hand_in(Door.UPDATE, data, seconds, run=task.run, step=task.step, digest=ref.digest)
        SITE_BYTES.add(ref.size, direction="up", carrier="bus")

    def sign(self, result: Result) -> Result:
        """The result with this participant's signature."""
        signature = self.identity.signing_key.sign(result.canonical(without=frozenset({"signature"})))
        # Checked already; base64 fields would be decoded again by validation.
        return result.model_copy(update={"signature": signature})

    async def publish(
        self, result: Result, *, seconds: float = 300.0, headers: Mapping[str, str] | None = None
    ) -> None:
        """Hand in a signed result. The same one may be handed in again.

        Args:
            headers: that go beside it.

        Raises:
            HanseError: UNAVAILABLE when `seconds` passed without success.
        """
        await self._hand_in(Door.RESULT, result.encode(), seconds, run=result.run, step=result.step, **_beside(headers))

    async def _hand_in(self, kind: Door, data: bytes, seconds: float, **about: str) -> None:
        """Until it is written down. What comes when the step has closed is of no use to anybody, and no error."""
        once = min(10.0, max(seconds, 1.0))
        try:
            await keep_trying(lambda: self.doors.ask(kind, data, timeout=once, **about), seconds, self.bus.clock)
        except HanseError as error:
            if error.code is not ErrorCode.GONE:
                raise
            _LOG.info("handed in too late: %s", error.message)

    async def answer(self, unsigned: Result) -> Result:
        """Sign and hand in the answer to a task (`result_for`)."""
        result = self.sign(unsigned)
        await self.publish(result)
        return result

    async def progress(self, task: Task, fraction: float, text: str = "") -> None:
        """Tell people how far the work is. Losing it is harmless, so a silent hub is not waited for."""
        message = Progress(
            project=task.project,
            run=task.run,
            step=task.step,
            participant=self.identity.participant,
            fraction=min(1.0, max(0.0, fraction)),
            text=text[:200],
        )
        await self.doors.say(Door.PROGRESS, message.encode(), run=task.run, step=task.step)

    def presence_message(
        self,
        *,
        device: str = "cpu",
        working_on: str | None = None,
        protocols: tuple[str, ...] | None = None,
        unfit: bool | None = None,
        rules: tuple[str, ...] | None = None,
        budget: BudgetTold | None = None,
        paused: bool | None = None,
        place: str | None = None,
    ) -> Presence:
        """The sign of life that `presence` sends."""
        return Presence(
            project=self.identity.project,
            participant=self.identity.participant,
            version=__version__,
            sent_at=self.bus.clock.now(),
            device=device,
            working_on=working_on,
            protocols=protocols,
            unfit=unfit,
            every=self.pace,
            rules=rules,
            budget=budget,
            paused=paused,
            place=place,
        )

    async def presence(
        self,
        *,
        device: str = "cpu",
        working_on: str | None = None,
        protocols: tuple[str, ...] | None = None,
        unfit: bool | None = None,
        rules: tuple[str, ...] | None = None,
        budget: BudgetTold | None = None,
        paused: bool | None = None,
        place: str | None = None,
    ) -> None:
        """Tell the hub that this participant is here. Sent on connecting and each `pace` seconds, which the hub names
        in its answer.

        Args:
            protocols: of many fine questions that the site's policy opens (`hanse_schemas.protocols`); None: not told.
            unfit: true where the site refuses its data.
            rules, budget, paused, place: as in `Presence`.

        Raises:
            HanseError: UNAVAILABLE, TIMEOUT or FORBIDDEN; CONFLICT where the site shows life from another place.
        """
        said = self.presence_message(
            device=device, working_on=working_on, protocols=protocols, unfit=unfit, rules=rules, budget=budget,
            paused=paused, place=place,
        ).encode()  # fmt: skip
        told = OpenTasks.decode(await self.doors.ask(Door.PRESENCE, said, timeout=30.0))
        self.pace = min(max(told.again or SLOWEST_PACE_S, _QUICKEST_PACE_S), SLOWEST_PACE_S)
        self._incoming.compare(told.open)


def result_for(
    task: Task,
    outcome: Outcome = Outcome.DONE,
    *,
    update: ObjectRef | None = None,
    examples: int = 0,
    metrics: Mapping[str, float] | None = None,
    seconds: float = 0.0,
    reason: str = "",
    code: str = "",
    code_digest: str | None = None,
    extras: Mapping[str, ObjectRef] | None = None,
    info: Mapping[str, float] | None = None,
    counted: str = "",
) -> Result:
    """The unsigned answer to a task.

    Raises:
        HanseError: TRAINING_FAILED when a metric, or a number in `info`, is not finite.
    """
    for name, value in (*(metrics or {}).items(), *(info or {}).items()):
        if not math.isfinite(value):
            raise HanseError(ErrorCode.TRAINING_FAILED, f"metric {name}: {value} is not a finite number")
    return Result(
        task=task.id,
        project=task.project,
        run=task.run,
        step=task.step,
        participant=task.participant,
        outcome=outcome,
        update=update,
        examples=examples,
        metrics=dict(metrics or {}),
        reason=reason[:2000],
        code=code,
        seconds=round(seconds, 6),
        code_digest=code_digest,
        extras=dict(extras) if extras else None,
        info=dict(info) if info else None,
        counted=counted or None,
    )


async def open_or_unknown(link: SiteLink, task: Task) -> bool:
    """Whether the hub waits for an answer to the task, as far as one can know: it may, where it does not answer."""
    with suppress(HanseError):
        return await link.is_open(task)
    return True


async def keep_trying(action: Callable[[], Awaitable[T]], seconds: float, clock: Clock) -> T:
    """Do `action` until it succeeds, waiting longer each time while servers are unavailable, for `seconds` at most."""
    end = clock.monotonic() + seconds
    wait = 0.1
    while True:
        try:
            return await action()
        except HanseError as error:
            if error.code not in _RETRIED or clock.monotonic() + wait > end:
                raise
        await clock.sleep(wait)
        wait = min(wait * 2, 5.0)


def _beside(headers: Headers | None) -> dict[str, str]:
    """What goes beside an answer, in the head of its request."""
    text = (headers or {}).get(BESIDE)
    return {} if text is None else {"beside": text}
