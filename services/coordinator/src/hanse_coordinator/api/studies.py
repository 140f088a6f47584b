"""A study's results for pages: in a few numbers, as points of two plots, and its hits to search."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.outputs import run_of_outputs
from hanse_coordinator.api.route import OWN, Request, Route
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.studies import (
    HitList,
    HitsQuery,
    PointsQuery,
    QuantilesQuery,
    StudyPoints,
    StudyQuantiles,
    StudyView,
)

if TYPE_CHECKING:
    from hanse_genomics.results.drawn import Drawn


async def get_study(hub: Hub, request: Request) -> StudyView:
    drawn, digest = await _drawn(hub, request)
    return await asyncio.to_thread(drawn.view, digest)


async def study_points(hub: Hub, request: Request) -> StudyPoints:
    drawn, _ = await _drawn(hub, request)
    query: PointsQuery = request.query
    return await asyncio.to_thread(drawn.points, query)


async def study_quantiles(hub: Hub, request: Request) -> StudyQuantiles:
    drawn, _ = await _drawn(hub, request)
    query: QuantilesQuery = request.query
    return await asyncio.to_thread(drawn.quantiles, query.points)


async def study_hits(hub: Hub, request: Request) -> HitList:
    drawn, _ = await _drawn(hub, request)
    query: HitsQuery = request.query
    return await asyncio.to_thread(drawn.hits, query)


async def _drawn(hub: Hub, request: Request) -> tuple[Drawn, str]:
    """The study and the digest of its results, where the caller may read its outputs."""
    record = await run_of_outputs(hub, request)
    if record.job.study is None:
        raise HanseError(
            ErrorCode.NOT_FOUND,
            f"run {record.run}: it is no study",
            hint="its metrics are at .../curves and .../metrics",
        )
    drawn, digest = await hub.studies.of(record), str(record.outputs["results"]["digest"])
    if hub.studies.is_first_look(request.caller.actor, digest):
        await hub.audit(
            request.caller, request.project, "output.look", f"run:{record.run}", output="results", digest=digest
        )
    return drawn, digest


_STUDY = "/v1/projects/{project}/runs/{run}/study"
ROUTES = (
    Route("GET", _STUDY, OWN, get_study, StudyView, "A study that has completed, in a few numbers"),
    Route("GET", _STUDY + "/points", OWN, study_points, StudyPoints,
          "Minus log10 of p along the genome, thinned to so many points", query=PointsQuery),
    Route("GET", _STUDY + "/quantiles", OWN, study_quantiles, StudyQuantiles,
          "Observed beside expected minus log10 of p, thinned", query=QuantilesQuery),
    Route("GET", _STUDY + "/hits", OWN, study_hits, HitList, "SNPs by p: searched, a part at a time", query=HitsQuery),
)  # fmt: skip
