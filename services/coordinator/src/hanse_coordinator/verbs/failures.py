"""How a coordinator's hold on a run ends early. Only `RunFailure` ends the run itself."""

from __future__ import annotations

from collections.abc import Iterator

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_workflows.failures import RunFailure


class Fenced(HanseError):  # noqa: N818 - an outcome of replacement, nothing erred
    """Another coordinator writes this run's journal now: this one stops, and touches nothing more of the run."""

    def __init__(self, run: str) -> None:
        super().__init__(ErrorCode.LOCKED, f"run {run}: another coordinator has taken it over")


class Paused(Exception):  # noqa: N818 - an outcome that was asked for, not an error
    """The owner asked for a pause, and the workflow has come to a verb's boundary."""


def first_reason(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of all that ended computations that were under way at once, what the run is to end by."""
    order = (Fenced, RunFailure, HanseError, Exception)
    return min(
        _flat(several), key=lambda one: next((at for at, kind in enumerate(order) if _is(one, kind)), len(order))
    )


def _is(error: BaseException, kind: type[Exception]) -> bool:
    return isinstance(error, kind) and not isinstance(error, Paused)


def _flat(several: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in several.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _flat(one)
        else:
            yield one
