"""How a coordinator's hold on a run ends early. Only `RunFailure` ends the run itself."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_workflows.failures import RunFailure, first_reason


class Fenced(HanseError):  # noqa: N818 - an outcome of replacement, nothing erred
    """Another coordinator writes this run's journal now: this one stops, and touches nothing more of the run."""

    def __init__(self, run: str) -> None:
        super().__init__(ErrorCode.LOCKED, f"run {run}: another coordinator has taken it over")


class Paused(Exception):  # noqa: N818 - an outcome that was asked for, not an error
    """The owner asked for a pause, and the workflow has come to a verb's boundary."""


def reason_of(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of all that ended computations that were under way at once, what the run is to end by."""
    return first_reason(several, Fenced, RunFailure, HanseError, _is_defect)


def _is_defect(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, Paused | BaseExceptionGroup)
