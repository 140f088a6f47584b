"""Runs: submit, look, steer. The API writes what is wanted, the run's supervisor does it and writes the rest; and what
has ended is removed here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.paging import page_of
from hanse_coordinator.api.route import OWN, Request, Route, view
from hanse_coordinator.api.submission import check_submission
from hanse_coordinator.api.terms import digest_of
from hanse_coordinator.preflight import ask_sites
from hanse_coordinator.records import RunRecord
from hanse_coordinator.runs.removal import remove_run
from hanse_fabric.doors.byte_ledger import by_round
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import LinkBytes, RunEvent, SentBytes
from hanse_fabric.names import new_run_id
from hanse_fabric.subjects import EVENT, SENT_BYTES, Stream
from hanse_fabric.telemetry import inject
from hanse_learning.config.checks import check_model, has_own_model
from hanse_learning.utility import check_utility
from hanse_privacy.report import describe, whole_epsilon
from hanse_schemas.http.paging import Page
from hanse_schemas.http.runs import (
    ALL_SITES,
    FINAL_STATES,
    Checked,
    MetricsQuery,
    Question,
    RoundBytes,
    RoundMetrics,
    RunList,
    RunMetrics,
    RunSummary,
    RunView,
    Submission,
    UtilityFinding,
    Wanted,
)
from hanse_schemas.job import EarlyStop, Job
from hanse_schemas.prepare import completed_job, features_schema
from hanse_schemas.schema import DataSchema, unit_of

S = TypeVar("S", bound=RunSummary)
_BYTES: Stream = SENT_BYTES.stream or Stream("")


def _summary(kind: type[S], record: RunRecord, **own: Any) -> S:
    job = record.job
    own |= {"rounds": 0 if job.study is not None else job.rounds, "name": job.name, "tags": job.tags}
    return view(kind, record, outputs=tuple(sorted(record.outputs)), **own)


async def _view(hub: Hub, record: RunRecord) -> RunView:
    project = await hub.project(record.project)
    return _summary(RunView, record, privacy=describe(record.job, unit=unit_of(project.data_schema)))


async def check_job(hub: Hub, request: Request) -> Checked:
    body: Question = request.body
    project = await hub.project(request.project)
    job = completed_job(body.job, project.data_schema)
    job, warnings = await check_submission(hub, project, job)
    findings = () if job.study is not None else check_utility(job)
    sites = None
    if body.sites:
        sites = await ask_sites(hub, project, job)
        asked = [site.participant for site in sites if site.findings]
        await hub.audit(request.caller, request.project, "sites.ask", f"project:{request.project}", answered=asked)
    utility = tuple(UtilityFinding(**dataclasses.asdict(finding)) for finding in findings)
    return Checked(
        valid=True,
        warnings=warnings,
        utility=utility,
        privacy=describe(job, unit=unit_of(project.data_schema)),
        epsilon=whole_epsilon(job),
        sites=sites,
    )


async def submit_run(hub: Hub, request: Request) -> RunView:
    body: Submission = request.body
    project = await hub.project(request.project)
    job = completed_job(body.job, project.data_schema)
    job, _ = await check_submission(hub, project, job)
    now, run = hub.clock.now(), new_run_id()
    record = RunRecord(
        project=request.project,
        run=run,
        job=job,
        problem=_problem(job, project.data_schema),
        created_at=now,
        created_by=request.caller.actor,
        updated_at=now,
        terms=digest_of(project),
        trace=inject().get("traceparent"),
    )
    await hub.quotas.take_run(record)
    # This event is published before the record exists, so that a supervisor's first event comes after it.
    event = RunEvent(project=request.project, run=run, kind="state", at=now, data={"state": "waiting"})
    await hub.bus.publish(EVENT.of(project=request.project, run=run), event.encode())
    await hub.buckets.runs.create(record, project=request.project, run=run)
    await hub.audit(request.caller, request.project, "run.submit", f"run:{run}", **_told(job))
    return await _view(hub, record)


def _problem(job: Job, schema: DataSchema) -> dict[str, Any] | None:
    """What the records of the run's models say they are for."""
    if job.study is not None or has_own_model(job):
        return None
    model = check_model(job.model, features_schema(job, schema))
    return {"schema": schema.model_dump(mode="json"), "model": model.model_dump(mode="json")}


def _told(job: Job) -> dict[str, Any]:
    """What the audit says of a job: of a study also what its owner takes upon themselves."""
    if job.study is None:
        return {"rounds": job.rounds}
    return {
        "workflow": job.workflow, "test": job.study.test, "few_cohorts": job.study.few_cohorts,
        "few_samples": job.study.few_samples,
    }  # fmt: skip


async def list_runs(hub: Hub, request: Request) -> RunList:
    await hub.project(request.project)
    found = [entry.value for entry in await hub.buckets.runs.list(project=request.project)]
    found.sort(key=lambda record: (record.created_at, record.run), reverse=True)
    page = page_of(found, request.query, lambda record: record.run)
    return RunList(runs=tuple(_summary(RunSummary, record) for record in page))


async def get_run(hub: Hub, request: Request) -> RunView:
    return await _view(hub, (await hub.buckets.runs.require(project=request.project, run=request.path["run"])).value)


async def pause_run(hub: Hub, request: Request) -> RunView:
    return await _steer(hub, request, "pause", "run.pause")


async def resume_run(hub: Hub, request: Request) -> RunView:
    return await _steer(hub, request, "run", "run.resume")


async def cancel_run(hub: Hub, request: Request) -> RunView:
    return await _steer(hub, request, "cancel", "run.cancel")


async def _steer(hub: Hub, request: Request, wanted: Wanted, action: str) -> RunView:
    now, changed = hub.clock.now(), False

    def alter(record: RunRecord) -> RunRecord:
        nonlocal changed
        changed = record.wanted != wanted
        if record.wanted == wanted and (wanted == "cancel" or record.state not in FINAL_STATES):
            return record
        if record.state in FINAL_STATES:
            raise HanseError(ErrorCode.GONE, f"run {record.run} is {record.state} already", hint="submit another run")
        if record.wanted == "cancel":
            raise HanseError(ErrorCode.CONFLICT, f"run {record.run} is being cancelled", hint="submit another run")
        return record.model_copy(update={"wanted": wanted, "updated_at": now})

    entry = await hub.buckets.runs.change(alter, project=request.project, run=request.path["run"])
    if changed:
        await hub.audit(request.caller, request.project, action, f"run:{entry.value.run}")
    return await _view(hub, entry.value)


async def run_metrics(hub: Hub, request: Request) -> RunMetrics:
    run = request.path["run"]
    job = (await hub.buckets.runs.require(project=request.project, run=run)).value.job
    query: MetricsQuery = request.query
    rounds = with_few_curves(await hub.histories.rounds(request.project, run), job.stop)
    wanted = [each for each in rounds if each.round > query.after][: query.limit]
    if not query.sites:
        wanted = [each.model_copy(update={"sites": {}}) for each in wanted]
    upto = wanted[-1].round if len(wanted) == query.limit else None
    wire = await _wire(hub, request.project, run, job)
    return RunMetrics(
        rounds=tuple(wanted),
        wire=tuple(
            each
            for each in wire
            if (each.round > query.after or not query.after) and (upto is None or each.round <= upto)
        ),
    )


def with_few_curves(rounds: list[RoundMetrics], stop: EarlyStop | None) -> tuple[RoundMetrics, ...]:
    """Rounds of which only the newest evaluation and the best by the metric to stop by have curves: those of all would
    be megabytes. Pure."""
    drawn = [each for each in rounds if each.curves]
    keep = {each.round for each in drawn[-1:]}
    told = [each for each in drawn if stop is not None and stop.metric in each.metrics]
    if stop is not None and told:
        pick = max if stop.mode == "max" else min
        keep.add(pick(told, key=lambda each: float(each.metrics[stop.metric])).round)
    return tuple(each if each.round in keep else each.model_copy(update={"curves": {}}) for each in rounds)


async def _wire(hub: Hub, project: str, run: str, job: Job) -> tuple[RoundBytes, ...]:
    """Of all sites together where nobody sees a single one's numbers: how often it spoke would be one."""
    records = await hub.bus.snapshot(_BYTES, SENT_BYTES.wildcard(project=project, run=run))
    counted = by_round(SentBytes.decode(record.data) for record in records)
    if job.secure_aggregation is not None or job.privacy is not None:
        counted = {number: {ALL_SITES: sum(each.values(), LinkBytes())} for number, each in counted.items()}
    return tuple(RoundBytes(round=number, sites=counted[number]) for number in sorted(counted))


async def remove_a_run(hub: Hub, request: Request) -> RunSummary:
    project, run = request.project, request.path["run"]
    entry = await hub.buckets.runs.require(project=project, run=run)
    await remove_run(hub.bus, hub.store, hub.buckets, entry)
    hub.histories.forget(project, run)
    hub.quotas.freed(project)
    record = entry.value
    about = {"name": record.job.name, "state": record.state, "version": record.model_version}
    await hub.audit(request.caller, project, "run.remove", f"run:{run}", **about)
    return _summary(RunSummary, record)


_BASE = "/v1/projects/{project}/runs"
_RUN = _BASE + "/{run}"
ROUTES = (
    Route("POST", "/v1/projects/{project}/check", OWN, check_job, Checked, "Check a job without running it",
          body=Question),
    Route("POST", _BASE, OWN, submit_run, RunView, "Submit a run", body=Submission, status=201),
    Route("GET", _BASE, OWN, list_runs, RunList, "A project's runs", query=Page),
    Route("GET", _RUN, OWN, get_run, RunView, "A run"),
    Route("DELETE", _RUN, OWN, remove_a_run, RunSummary, "Remove a run that has ended, with its curves and results",
          ends=True),
    Route("POST", _RUN + "/pause", OWN, pause_run, RunView, "Pause a run at its next step"),
    Route("POST", _RUN + "/resume", OWN, resume_run, RunView, "Let a paused run go on"),
    Route("POST", _RUN + "/cancel", OWN, cancel_run, RunView, "End a run now", ends=True),
    Route("GET", _RUN + "/metrics", OWN, run_metrics, RunMetrics, "Metrics by round", query=MetricsQuery),
)  # fmt: skip
