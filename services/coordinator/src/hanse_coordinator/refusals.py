"""Refusals, counted: of what, for which reason, and (of so many participants at most) whose."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Outcome
from hanse_fabric.telemetry.catalogue import LATE_RESULTS, REFUSALS, REFUSED, RESULTS, RUNS_ENDED

WHAT = ("link", "masks", "request", "result", "task", "update")
"""link: to the store; masks: by the compensator; request: to the HTTP API; result: forged, malformed or another than
before; task: by a site's own policy; update: by an aggregator."""

MOST_NAMED = 300
"""Series by participant; what is beyond them is counted as OTHERS."""

OTHERS = "(others)"
_OTHER_CODE = "other"
_named: set[tuple[str, str, str, str]] = set()


def count_refusal(what: str, code: str, project: str = "", participant: str = "") -> None:
    """Count one refusal.

    Args:
        what: one of WHAT.
        code: of the catalogue of errors; a site may have said any.
        participant: whose it was, where one is known.
    """
    if code.upper().replace("-", "_") not in ErrorCode.__members__:
        code = _OTHER_CODE
    REFUSALS.add(what=what, code=code)
    if not participant:
        return
    series = (project, participant, what, code)
    if series not in _named and len(_named) >= MOST_NAMED:
        series = (OTHERS, OTHERS, what, code)
    _named.add(series)
    REFUSED.add(project=series[0], participant=series[1], what=what, code=code)


def begin_counting() -> None:
    """Show every total from zero on: if one appeared only with its first refusal, no rate would count that one."""
    LATE_RESULTS.add(0)
    for state in ("completed", "failed", "cancelled"):
        RUNS_ENDED.add(0, state=state)
    for outcome in ("done", *(outcome.value for outcome in Outcome)):
        RESULTS.add(0, outcome=outcome)
    for what in WHAT:
        for code in ErrorCode:
            REFUSALS.add(0, what=what, code=code.code)
