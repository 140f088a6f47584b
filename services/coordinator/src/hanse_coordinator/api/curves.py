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
    names = _names(rounds)
    metric = query.metric or (preferred if preferred in names else next(iter(names), ""))
    if metric not in names and query.metric is not None:
        raise HanseError(
            ErrorCode.NOT_FOUND, f"metric: no round has {metric!r}", hint=f"there are: {', '.join(names) or 'none yet'}"
        )
    overall = [value if is_number(value := each.metrics.get(metric)) else None for each in rounds]
    at = kept(overall, query.points)
    low, high = spans([each.get(metric) for each in spreads], at)
    drawn = [rounds[index] for index in at]
    return RunCurves(
        metric=metric,
        metrics=names,
        finished=len(rounds),
        rounds=tuple(rounds[index].round for index in at),
        overall=tuple(number(overall[index]) for index in at),
        low=tuple(low),
        high=tuple(high),
        sites={site: tuple(_of_site(each, site, metric) for each in drawn) for site in sorted(_sites(drawn, query))},
    )


def _names(rounds: Sequence[RoundMetrics]) -> tuple[str, ...]:
    """Of all metrics that have a number in some round, in the order in which they came."""
    found: dict[str, None] = {}
    for each in rounds:
        if not each.metrics.keys() <= found.keys():
            found |= dict.fromkeys(name for name, told in each.metrics.items() if is_number(told))
    return tuple(found)


def _sites(drawn: Sequence[RoundMetrics], query: CurvesQuery) -> set[str]:
    """Those that are asked for, as far as they have told something."""
    if query.site is not None:
        return {query.site} if any(query.site in each.sites for each in drawn) else set()
    return {site for each in drawn for site in each.sites} if query.sites else set()


def _of_site(one: RoundMetrics, site: str, metric: str) -> Value:
    told = one.sites.get(site)
    return number(told.get(metric)) if isinstance(told, dict) else None


ROUTES = (
    Route("GET", "/v1/projects/{project}/runs/{run}/curves", OWN, run_curves, RunCurves,
          "A metric over the rounds, thinned to so many points; by site, too", query=CurvesQuery),
    Route("GET", "/v1/projects/{project}/runs/{run}/evaluation", OWN, run_evaluation, RunEvaluation,
          "The newest evaluation with its curves: calibration, ROC, subgroups"),
)  # fmt: skip
