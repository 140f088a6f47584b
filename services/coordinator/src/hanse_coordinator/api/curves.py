"""A run's metrics as curves of few points."""

from __future__ import annotations

from collections.abc import Sequence

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import OWN, Request, Route
from hanse_coordinator.thinning import Value, kept, number, spans
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.curves import CurvesQuery, RunCurves, RunEvaluation
from hanse_schemas.http.runs import RoundMetrics


async def run_curves(hub: Hub, request: Request) -> RunCurves:
    query: CurvesQuery = request.query
    run = str(request.path["run"])
    job = (await hub.buckets.runs.require(project=request.project, run=run)).value.job
    rounds = await hub.histories.rounds(request.project, run)
    return curves_of(rounds, query, preferred=job.stop.metric if job.stop is not None else None)


async def run_evaluation(hub: Hub, request: Request) -> RunEvaluation:
    run = str(request.path["run"])
    await hub.buckets.runs.require(project=request.project, run=run)
    rounds = await hub.histories.rounds(request.project, run)
    newest = next((each for each in reversed(rounds) if each.curves), None)
    return RunEvaluation(newest=None if newest is None else newest.model_copy(update={"sites": {}}))


def curves_of(rounds: Sequence[RoundMetrics], query: CurvesQuery, *, preferred: str | None) -> RunCurves:
    """The curves of finished rounds. Pure.

    Raises:
        HanseError: NOT_FOUND for a metric that no round has, naming those that there are.
    """
    names = tuple(dict.fromkeys(name for each in rounds for name, told in each.metrics.items() if _is_number(told)))
    metric = query.metric or (preferred if preferred in names else next(iter(names), ""))
    if metric not in names and query.metric is not None:
        raise HanseError(
            ErrorCode.NOT_FOUND, f"metric: no round has {metric!r}", hint=f"there are: {', '.join(names) or 'none yet'}"
        )
    overall = [number(each.metrics.get(metric)) for each in rounds]
    at = kept(overall, query.points)
    columns = {
        site: [_of_site(each, site, metric) for each in rounds]
        for site in sorted({site for each in rounds for site in each.sites})
    }
    low, high = spans(columns, at)

    def chosen(column: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(column[index] for index in at)

    return RunCurves(
        metric=metric,
        metrics=names,
        finished=len(rounds),
        rounds=tuple(rounds[index].round for index in at),
        overall=chosen(overall),
        low=tuple(low),
        high=tuple(high),
        sites={site: chosen(column) for site, column in columns.items()} if query.sites else {},
    )


def _of_site(one: RoundMetrics, site: str, metric: str) -> Value:
    told = one.sites.get(site)
    return number(told.get(metric)) if isinstance(told, dict) else None


def _is_number(value: object) -> bool:
    return number(value) is not None


ROUTES = (
    Route("GET", "/v1/projects/{project}/runs/{run}/curves", OWN, run_curves, RunCurves,
          "A metric over the rounds, thinned to so many points; by site, too", query=CurvesQuery),
    Route("GET", "/v1/projects/{project}/runs/{run}/evaluation", OWN, run_evaluation, RunEvaluation,
          "The newest evaluation with its curves: calibration, ROC, subgroups"),
)  # fmt: skip
