"""Sites are asked what they say of a job that is no run yet: one step of tasks under an id of its own, which ends with
the answer to whoever asked."""

from __future__ import annotations

import base64
import logging
from contextlib import suppress
from datetime import timedelta

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.doors import mark_of
from hanse_coordinator.records import ProjectRecord
from hanse_coordinator.refusals import count_refusal
from hanse_coordinator.verbs.collector import Collector
from hanse_coordinator.verbs.mask_sums import announced
from hanse_coordinator.verbs.shared_mask_sums import announced_group
from hanse_coordinator.verbs.verified import verified_result
from hanse_fabric.bus.port import Record
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Masking, MaskingMode, SiteCheck, Task
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.names import new_run_id
from hanse_fabric.subjects import RESULT, TASK, TASK_MARK, TELL, Stream
from hanse_fabric.telemetry import inject
from hanse_fabric.waiting import all_of, first_of
from hanse_schemas.http.runs import SiteAnswer
from hanse_schemas.job import Job
from hanse_workflows.answers import Terms
from hanse_workflows.ask import Ask
from hanse_workflows.masking.protocols import plan_of
from hanse_workflows.preflight import STEP, asked_of, question, said

_LOG = logging.getLogger(__name__)
_TASKS: Stream = TASK.stream or Stream("")
_RESULTS: Stream = RESULT.stream or Stream("")
_AWAY, _PAUSED, _NOT_ASKED = (
    "it is not there", "its administrator has paused it", "it was not asked, as there are very many"
)  # fmt: skip


async def ask_sites(hub: Hub, project: ProjectRecord, job: Job) -> tuple[SiteAnswer, ...]:
    """What each enrolled site says of the job, by name. Sites that are away, or paused, are not asked.

    Raises:
        HanseError: UNAVAILABLE where a compensator that the job needs has not announced itself.
    """
    entries = await hub.buckets.participants.list(project=project.name)
    members = {entry.value.participant: entry.value for entry in entries if not entry.value.revoked}
    seen = {name: hub.presence.of(project.name, name) for name in members}
    online = sorted(name for name, last in seen.items() if hub.presence.online(last))
    resting = {name for name in online if (last := seen[name]) is not None and last.presence.paused}
    there = asked_of(job, tuple(name for name in online if name not in resting))
    answers: dict[str, SiteAnswer] = {}
    if there:
        ask = question(job, there, await _masking(hub, job, len(there)))
        found = await _Asking(hub, project, job, ask, {name: members[name] for name in there}).answers()
        answers = {name: _view(name, each) for name, each in found.items()}
    away = dict.fromkeys(members, _AWAY) | dict.fromkeys(online, _NOT_ASKED) | dict.fromkeys(resting, _PAUSED)
    return tuple(answers.get(name) or SiteAnswer(participant=name, reason=away[name]) for name in sorted(members))


def _view(name: str, answer: SiteCheck | str) -> SiteAnswer:
    if isinstance(answer, SiteCheck):
        return SiteAnswer(participant=name, findings=answer.findings)
    return SiteAnswer(participant=name, reason=answer[:500])


async def _masking(hub: Hub, job: Job, members: int) -> Masking | None:
    """As the run's tasks will say it, of all who are there."""
    sums = job.secure_aggregation
    if sums is None:
        return None
    key = group = None
    if sums.compensators is not None and sums.needed is not None:
        step = timedelta(seconds=job.participants.deadline)
        group = await announced_group(hub.bus, sums.compensators, sums.needed, hub.clock.now(), step)
    elif sums.mode == "compensator":
        key = await announced(hub.bus)
    return Masking(
        mode=MaskingMode(sums.mode), session=STEP, minimum=sums.minimum, ring=plan_of(job, sums, members),
        compensator=None if key is None else base64.b64encode(key), compensators=group,
    )  # fmt: skip


class _Asking:
    """One question to several sites."""

    def __init__(
        self, hub: Hub, record: ProjectRecord, job: Job, ask: Ask, members: dict[str, ParticipantRecord]
    ) -> None:
        project = record.name
        self._hub, self._project, self._ask, self._members = hub, project, ask, members
        self._run, self._issued = new_run_id(), hub.clock.now()
        self._deadline = self._issued + timedelta(seconds=ask.deadline)
        self._task = ask.task(project, self._run, job.workflow, STEP, self._issued, self._deadline)
        common = {} if record.terms is None else {"terms": record.terms.digest}
        own = {name: ask.own(self._run, STEP, name) | common for name in ask.to}
        self._tasks = {name: self._task.model_copy(update=each) for name, each in own.items()}
        ids = {name: task.id for name, task in self._tasks.items()}
        self._collector = Collector(ids, needed=0, terms=Terms.of(ask, project, self._run, 0))

    async def answers(self) -> dict[str, SiteCheck | str]:
        try:
            await first_of(self._listen(), self._send_and_wait())
        finally:
            for stream, subject in ((_TASKS, TASK), (_RESULTS, RESULT)):
                with suppress(HanseError):  # sites and streams forget by themselves, too
                    await self._hub.bus.purge(stream, subject.wildcard(project=self._project, run=self._run))
        answers, failures = self._collector.answers.values(), self._collector.failures.values()
        return dict(said(self._ask.gathered([*answers, *failures])))

    async def _send_and_wait(self) -> None:
        await all_of(self._send(name, task) for name, task in self._tasks.items())
        await self._collector.closed(self._hub.clock, self._deadline, None)

    async def _send(self, name: str, task: Task) -> None:
        subject = TASK.of(project=self._project, participant=name, run=self._run, step=STEP)
        data, headers = task.encode(), inject()
        sequence = await self._hub.bus.publish(subject, data, headers=headers, message_id=task.id)
        region = self._members[name].connects_in
        await self._hub.bus.tell(
            TELL.of(region=region, project=self._project, participant=name), data,
            headers=headers | {TASK_MARK: mark_of(subject, sequence)},
        )  # fmt: skip

    async def _listen(self) -> None:
        pattern = RESULT.wildcard(project=self._project, run=self._run)
        async with self._hub.bus.follow(_RESULTS, pattern) as records:
            async for record in records:
                self._take(record)

    def _take(self, record: Record) -> None:
        tokens = RESULT.parse(record.subject)
        name, member = tokens["participant"], self._members.get(tokens["participant"])
        key = None if member is None else member.public_key
        try:
            result = verified_result(record.data, key, **tokens, read=None)
        except HanseError as error:
            count_refusal("result", error.code.code, self._project, name)
            _LOG.warning("result on %s refused: %s", record.subject, error)
            return
        if self._collector.expects(result):
            self._collector.take(result)
