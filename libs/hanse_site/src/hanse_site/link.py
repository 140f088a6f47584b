"""The link between a participant and its hub: tasks come in, updates and signed results go out.

What it sends is idempotent (updates by content, results by task), so everything may be sent again after a crash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from hanse_fabric import __version__
from hanse_fabric.bus.issuing import region_of
from hanse_fabric.bus.port import HEARTBEAT_S, Bus, Headers
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import (
    INLINE_LIMIT,
    BudgetTold,
    ObjectRef,
    Outcome,
    Presence,
    Progress,
    Result,
    Task,
)
from hanse_fabric.messages.doors import BESIDE, OpenTasks
from hanse_fabric.messages.objects import update_key
from hanse_fabric.messages.tasks import SLOWEST_PACE_S
from hanse_fabric.names import HUB_REGION
from hanse_fabric.store.file_upload import FileUpload
from hanse_fabric.strict_json import parse_json
from hanse_fabric.subjects import Door
from hanse_fabric.telemetry.catalogue import SITE_BYTES
from hanse_fabric.tensors.digest import digest_file
from hanse_site.identity import SiteIdentity
from hanse_site.incoming import Incoming, ReceivedTask
from hanse_site.remote import ask_upload
from hanse_site.renewal import current_token, keep_renewed
from hanse_site.task_files import TaskFiles
from hanse_site.trying import keep_trying

if TYPE_CHECKING:
    from hanse_fabric.store.transfer import Transfer

FRESH_S = 5.0
"""A task that came so recently is open."""
_QUICKEST_PACE_S = 10.0
"""Whatever a hub asks for: every sign of life is a line of the log of what left."""
_LOG = logging.getLogger(__name__)


class SignOfLife(TypedDict, total=False):
    """What a site may tell of itself in a sign of life (`Presence`)."""

    device: str
    working_on: str | None
    protocols: tuple[str, ...] | None
    unfit: bool | None
    rules: tuple[str, ...] | None
    budget: BudgetTold | None
    paused: bool | None
    place: str | None


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
        files: what tasks name: models, and what algorithms need beside them.
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
        self.files = TaskFiles(identity.home, self.doors, transfer, bus.clock)

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

    async def _read(self, tasks: AsyncIterator[ReceivedTask]) -> AsyncIterator[OpenTask]:
        async for given in tasks:
            try:
                task = self._check(given, Task.decode(given.data))
            except HanseError as error:
                await self._answer_unreadable(given, error)
                continue
            clock = self.bus.clock
            yield OpenTask(task, given.headers, given.pending, clock.monotonic(), clock)

    def _check(self, given: ReceivedTask, task: Task) -> Task:
        said = f"{task.run}.{task.step}.{given.sequence}"
        whose = (task.project, task.participant)
        if said != given.mark or whose != (self.identity.project, self.identity.participant):
            raise HanseError(
                ErrorCode.TAMPERED, f"task {task.id}: it says {whose} and {said}, but came as {given.mark}"
            )
        return task

    async def _answer_unreadable(self, given: ReceivedTask, error: HanseError) -> None:
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
        once = min(10.0, max(seconds / 3, 1.0))  # who has it may die with it: there is time for another try
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

    def presence_message(self, **told: Unpack[SignOfLife]) -> Presence:
        """The sign of life that `presence` sends."""
        return Presence(
            project=self.identity.project,
            participant=self.identity.participant,
            version=__version__,
            sent_at=self.bus.clock.now(),
            every=self.pace,
            **told,
        )

    async def presence(self, **told: Unpack[SignOfLife]) -> None:
        """Tell the hub that this participant is here. Sent on connecting and each `pace` seconds, which the hub names
        in its answer.

        Args:
            told: fields of `Presence`.

        Raises:
            HanseError: UNAVAILABLE, TIMEOUT or FORBIDDEN; CONFLICT where the site shows life from another place.
        """
        said = self.presence_message(**told).encode()
        heard = OpenTasks.decode(await self.doors.ask(Door.PRESENCE, said, timeout=30.0))
        self.pace = min(max(heard.again or SLOWEST_PACE_S, _QUICKEST_PACE_S), SLOWEST_PACE_S)
        self._incoming.compare(heard.open)


async def open_or_unknown(link: SiteLink, task: Task) -> bool:
    """Whether the hub waits for an answer to the task, as far as one can know: it may, where it does not answer."""
    with suppress(HanseError):
        return await link.is_open(task)
    return True


def _beside(headers: Headers | None) -> dict[str, str]:
    """What goes beside an answer, in the head of its request."""
    text = (headers or {}).get(BESIDE)
    return {} if text is None else {"beside": text}
