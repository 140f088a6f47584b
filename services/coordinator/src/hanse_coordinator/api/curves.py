"""A run's metrics as curves of few points."""

from __future__ import annotations

from collections.abc import Sequence

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import OWN, Request, Route
from hanse_coordinator.thinning import Spread, Value, is_number, kept, number, spans
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http.curves import CurvesQuery, RunCurves, RunEvaluation
from hanse_schemas.http.runs import RoundMetrics


async def run_curves(hub: Hub, request: Request) -> RunCurves:
    query: CurvesQuery = request.query
    run = str(request.path["run"])
    job = (await hub.buckets.runs.require(project=request.project, run=run)).value.job
    rounds, spreads = await hub.histories.spreads(request.project, run)
    return curves_of(rounds, spreads, query, preferred=job.stop.metric if job.stop is not None else None)


async def run_evaluation(hub: Hub, request: Request) -> RunEvaluation:
    run = str(request.path["run"])
    await hub.buckets.runs.require(project=request.project, run=run)
    rounds = await hub.histories.rounds(request.project, run)
    newest = next((each for each in reversed(rounds) if each.curves), None)
    return RunEvaluation(newest=None if newest is None else newest.model_copy(update={"sites": {}}))


def curves_of(
    rounds: Sequence[RoundMetrics], spreads: Sequence[Spread], query: CurvesQuery, *, preferred: str | None
) -> RunCurves:
    """The curves of finished rounds. Pure. Only what is drawn is looked at by site: a run may have told as many numbers
    as a hundred thousand, and every watcher asks after every round.

    Args:
        spreads: of the rounds.

    Raises:
        HanseError: NOT_FOUND for a metric that no round has, naming those that there are.
    """
    names = tuple(dict.fromkeys(name for each in rounds for name, told in each.metrics.items() if is_number(told)))
    metric = query.metric or (preferred if preferred in names else next(iter(names), ""))
    if metric not in names and query.metric is not None:
        raise HanseError(
            ErrorCode.NOT_FOUND, f"metric: no round has {metric!r}", hint=f"there are: {', '.join(names) or 'none yet'}"
        )
    overall = [number(each.metrics.get(metric)) for each in rounds]
    at = kept(overall, query.points)
    low, high = spans([each.get(metric) for each in spreads], at)
    told = {site for index in at for site in rounds[index].sites}
    wanted = {query.site} if query.site is not None else told if query.sites else set[str]()

    return RunCurves(
        metric=metric,
        metrics=names,
        finished=len(rounds),
        rounds=tuple(rounds[index].round for index in at),
        overall=tuple(overall[index] for index in at),
        low=tuple(low),
        high=tuple(high),
        sites={site: tuple(_of_site(rounds[index], site, metric) for index in at) for site in sorted(told & wanted)},
    )


def _of_site(one: RoundMetrics, site: str, metric: str) -> Value:
    told = one.sites.get(site)
    return number(told.get(metric)) if isinstance(told, dict) else None


ROUTES = (
    Route("GET", "/v1/projects/{project}/runs/{run}/curves", OWN, run_curves, RunCurves,
          "A metric over the rounds, thinned to so many points; by site, too", query=CurvesQuery),
    Route("GET", "/v1/projects/{project}/runs/{run}/evaluation", OWN, run_evaluation, RunEvaluation,
          "The newest evaluation with its curves: calibration, ROC, subgroups"),
)  # fmt: skip
