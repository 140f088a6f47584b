"""By which bounds sites count values for `concordance`: those of the project's schema. Loads no numpy."""

from __future__ import annotations

from collections.abc import Iterable

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_schemas.schema import DataSchema, target_bounds_of

_HINT = (
    "in the schema of a regression: target_bounds: [0, 100], where values are ordinarily, with bounds between where "
    "they crowd; a job cannot choose them, lest it move a bound by one person and look at the difference. "
    "concordance_correlation (Lin's) needs none"
)


def completed_bounds(given: tuple[float, ...], schema: DataSchema | None) -> tuple[float, ...]:
    """By which a project's values are counted for `concordance`.

    Raises:
        HanseError: INVALID_INPUT where the schema does not say it, or otherwise than a job.
    """
    declared = target_bounds_of(schema)
    if not declared:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            "evaluate.metrics: concordance is counted by target_bounds of the project's schema, which has none",
            hint=_HINT,
        )
    if given not in ((), declared):
        raise invalid(
            "evaluate.bounds", list(given), f"the target_bounds of the project's schema: {list(declared)}", hint=_HINT
        )  # fmt: skip
    return declared


def check_needed(given: tuple[float, ...], metrics: Iterable[str]) -> None:
    """Refuse bounds by which nothing of a job would be counted.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if given and "concordance" not in metrics:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"evaluate.bounds: {list(given)}: no metric of this job is counted by bounds",
            hint="concordance alone is: name it in evaluate.metrics, or leave evaluate.bounds out",
        )  # fmt: skip


def check_bounds(given: tuple[float, ...], schema: DataSchema) -> None:
    """Check that a site counts values by bounds that its project has declared, and by no others.

    Raises:
        HanseError: SCHEMA_MISMATCH.
    """
    if given and given != target_bounds_of(schema):
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH, "evaluate.bounds: they are not the target_bounds of the project's schema",
            hint="the hub changed one of them: enrol the site again, or submit the job again",
        )  # fmt: skip
