"""What a study has made: listed, and downloaded by presigned links; by owners, and by the cohorts of the study."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hanse_coordinator.api.hub import DOWNLOADS_AT_ONCE, Hub
from hanse_coordinator.api.models import ask_registry
from hanse_coordinator.api.route import READ, Request, Route
from hanse_coordinator.records import RunRecord
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, RegistryRequest, StudyOutput
from hanse_schemas.http.keys import ApiRole
from hanse_schemas.http.outputs import OutputLink, OutputList, OutputView, SignedOutput

_DOWNLOAD_FOR = timedelta(hours=1)


async def list_outputs(hub: Hub, request: Request) -> OutputList:
    found = _refs(await run_of_outputs(hub, request))
    return OutputList(outputs=tuple(_view(name, ref) for name, ref in sorted(found.items())))


async def download_output(hub: Hub, request: Request) -> OutputLink:
    run, name = request.path["run"], request.path["output"]
    record = await run_of_outputs(hub, request)
    ref = _refs(record).get(name)
    if ref is None or ref.key is None:
        raise HanseError(
            ErrorCode.NOT_FOUND, f"output: run {run} has no output {name!r}",
            hint="outputs are there when a study has completed",
        )  # fmt: skip
    if not hub.downloads.take((request.project, request.caller.actor)):
        raise HanseError(
            ErrorCode.TOO_MANY, f"output: {request.caller.actor} has fetched outputs {DOWNLOADS_AT_ONCE} times",
            hint="each is in the audit for good: one a minute more; a link is good for an hour",
        )  # fmt: skip
    signed = await _signed(hub, request, record, name, ref, ref.key)
    url = await asyncio.to_thread(hub.store.link_get, ref.key, _DOWNLOAD_FOR)
    await hub.audit(request.caller, request.project, "output.download", f"run:{run}", output=name, digest=ref.digest)
    expires = hub.clock.now() + _DOWNLOAD_FOR
    return OutputLink(url=url, expires_at=expires, output=_view(name, ref), signed=SignedOutput.of(signed))


async def _signed(hub: Hub, request: Request, record: RunRecord, name: str, ref: ObjectRef, key: str) -> StudyOutput:
    """The output as the registry has signed it; the first who fetches it has it signed."""
    told = StudyOutput(
        project=record.project, run=record.run, name=name, digest=ref.digest, size=ref.size, leaves=ref.leaves, key=key,
        cohorts=record.cohorts,
    )  # fmt: skip
    question = RegistryRequest(action="sign", project=record.project, actor=request.caller.actor, output=told)
    reply = await ask_registry(hub, question)
    if reply.output is None:
        raise HanseError(ErrorCode.INTERNAL, "the model registry answered without a signed output")
    return reply.output


async def run_of_outputs(hub: Hub, request: Request) -> RunRecord:
    """The run that is asked for, where the caller may read its outputs."""
    record = (await hub.buckets.runs.require(project=request.project, run=request.path["run"])).value
    caller = request.caller
    if caller.role is ApiRole.SITE and record.cohorts is not None and caller.participant not in record.cohorts:
        # What a study tells may tell who is in it: that is shared among those whose people these are.
        raise HanseError(
            ErrorCode.FORBIDDEN, f"run {record.run}: {caller.participant} took no part in it, so its key does not show "
            "what it has made", hint="ask the project's owner",
        )  # fmt: skip
    return record


def _refs(record: RunRecord) -> dict[str, ObjectRef]:
    return {name: ObjectRef.model_validate(body) for name, body in record.outputs.items()}


def _view(name: str, ref: ObjectRef) -> OutputView:
    return OutputView(name=name, digest=ref.digest, leaves=ref.leaves, size=ref.size)


_BASE = "/v1/projects/{project}/runs/{run}/outputs"
ROUTES = (
    Route("GET", _BASE, READ, list_outputs, OutputList, "What a study has made"),
    Route("GET", _BASE + "/{output}", READ, download_output, OutputLink, "A presigned link to an output of a study"),
)
