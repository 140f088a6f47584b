"""How a run's work ends early. Only `RunFailure` ends the run itself; the others end this coordinator's hold on it."""

from __future__ import annotations

from hanse_fabric.errors import ErrorCode, HanseError


class RunFailure(HanseError):  # noqa: N818 - a run fails; nothing erred
    """The run cannot go on, for a reason that its owner is told: it becomes `failed`."""


class Fenced(HanseError):  # noqa: N818 - as above
    """Another coordinator writes this run's journal now: this one stops, and touches nothing more of the run."""

    def __init__(self, run: str) -> None:
        super().__init__(ErrorCode.LOCKED, f"run {run}: another coordinator has taken it over")


class Paused(Exception):  # noqa: N818 - an outcome that was asked for, not an error
    """The owner asked for a pause, and the workflow has come to a verb's boundary."""
