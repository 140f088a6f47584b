"""A study's results for pages: in a few numbers, as points of two plots, and its hits to search."""

from __future__ import annotations

import asyncio
import dataclasses

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.outputs import run_of_outputs
from hanse_coordinator.api.route import OWN, Request, Route
from hanse_coordinator.records import RunRecord
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.files.snps import LABELS
from hanse_genomics.results.drawn import GENOME_WIDE, Drawn, Region
from hanse_schemas.http.studies import (
    ChromosomeView,
    HitList,
    HitsQuery,
    HitView,
    PointsQuery,
    QuantilesQuery,
    StudyPoints,
    StudyQuantiles,
    StudyView,
)

_DIGITS = 6


async def get_study(hub: Hub, request: Request) -> StudyView:
    record, drawn = await _drawn(hub, request)
    return await asyncio.to_thread(_view, record, drawn)


async def study_points(hub: Hub, request: Request) -> StudyPoints:
    _, drawn = await _drawn(hub, request)
    return await asyncio.to_thread(_points, drawn, request.query)


async def study_quantiles(hub: Hub, request: Request) -> StudyQuantiles:
    _, drawn = await _drawn(hub, request)
    query: QuantilesQuery = request.query
    expected, observed = await asyncio.to_thread(drawn.quantiles, query.points)
    return StudyQuantiles(expected=tuple(_short(expected.tolist())), observed=tuple(_short(observed.tolist())))


async def study_hits(hub: Hub, request: Request) -> HitList:
    _, drawn = await _drawn(hub, request)
    query: HitsQuery = request.query
    found, there = await asyncio.to_thread(
        drawn.hits, contains=query.contains.strip(), after=query.after, limit=query.limit
    )
    return HitList(there=there, hits=tuple(HitView(rank=at + 1, **dataclasses.asdict(hit)) for at, hit in found))


async def _drawn(hub: Hub, request: Request) -> tuple[RunRecord, Drawn]:
    """The study, where the caller may read its outputs."""
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
    return record, drawn


def _view(record: RunRecord, drawn: Drawn) -> StudyView:
    tested = len(drawn.order)
    level = 0.05 / max(tested, 1)
    inflation = drawn.summary.get("lambda")
    return StudyView(
        digest=str(record.outputs["results"]["digest"]),
        test=drawn.test,
        snps=len(drawn),
        tested=tested,
        genome_wide=drawn.below(GENOME_WIDE),
        bonferroni=drawn.below(level),
        level=level,
        inflation=float(inflation) if isinstance(inflation, int | float) else None,
        effect=drawn.effect,
        chromosomes=tuple(ChromosomeView(chromosome=name, begin=a, end=b) for name, a, b in drawn.places()),
        summary={name: told for name, told in drawn.summary.items() if name != "lambda"},
    )


def _points(drawn: Drawn, query: PointsQuery) -> StudyPoints:
    rows, there = drawn.points(query.points, Region(query.chromosome, query.begin, query.end))
    return StudyPoints(
        there=there,
        chromosome=tuple(LABELS[code] for code in drawn.code[rows].tolist()),
        position=tuple(drawn.position[rows].tolist()),
        minus_log10_p=tuple(_short(drawn.y[rows].tolist())),
        snp=tuple(drawn.name(int(row)) for row in rows),
    )


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


_STUDY = "/v1/projects/{project}/runs/{run}/study"
ROUTES = (
    Route("GET", _STUDY, OWN, get_study, StudyView, "A study that has completed, in a few numbers"),
    Route("GET", _STUDY + "/points", OWN, study_points, StudyPoints,
          "Minus log10 of p along the genome, thinned to so many points", query=PointsQuery),
    Route("GET", _STUDY + "/quantiles", OWN, study_quantiles, StudyQuantiles,
          "Observed beside expected minus log10 of p, thinned", query=QuantilesQuery),
    Route("GET", _STUDY + "/hits", OWN, study_hits, HitList, "SNPs by p: searched, a part at a time", query=HitsQuery),
)  # fmt: skip
