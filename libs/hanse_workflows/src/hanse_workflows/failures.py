"""How a run fails, and how it fails when a workflow does not ask the same at every pass."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError


class RunFailure(HanseError):  # noqa: N818 - a run fails; nothing erred
    """The run cannot go on, for a reason that its owner is told: it becomes `failed`."""


def step_changed(key: str, recorded: str, asked: str) -> RunFailure:
    """Another thing is asked under a step's key than the run's journal has the outcome of."""
    return RunFailure(
        ErrorCode.STEP_CHANGED,
        f"step {key}: the run's journal has it with fingerprint {recorded}, the workflow asks now for {asked}",
        hint="a workflow asks the same at every pass, whatever the time, chance or the machine; was the workflow, or a "
        "plug-in, replaced while the run was open?",
    )


def step_reused(key: str, first: str, second: str) -> RunFailure:
    """A step's key is used a second time in one pass through the workflow."""
    return RunFailure(
        ErrorCode.STEP_CHANGED,
        f"step {key}: the workflow has used this key already, with fingerprint {first}, and asks again with {second}",
        hint="give each verb of a run a key of its own, such as r3-p2-train for the second site of round 3",
    )


async def outcome_of(key: str, do: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Do a step. Its outcome is what a replay would read from the journal: a mapping of texts to JSON values.

    Raises:
        RunFailure: INVALID_INPUT for a function that is not async, an outcome that is no mapping, and one with a tuple,
            a number for a name, what is not finite, or anything else.
    """
    begun: object = do()
    if not isinstance(begun, Awaitable):
        told = f"step {key}: what does it gives {type(begun).__name__} at once; it is to be an async function"
        raise RunFailure(ErrorCode.INVALID_INPUT, told)
    body: object = await begun
    if not isinstance(body, dict):
        told = f"step {key}: its outcome is {type(body).__name__}; give a mapping of names to JSON values"
        raise RunFailure(ErrorCode.INVALID_INPUT, told)
    if not _is_json(body):
        raise RunFailure(
            ErrorCode.INVALID_INPUT,
            f"step {key}: its outcome is not the same after a replay; give JSON values, lists for tuples",
        )
    return body


def require_finite(what: str, told: Mapping[str, Any]) -> None:
    """Refuse to tell people a number that no message can hold: else what it stands in would be told to nobody.

    Raises:
        RunFailure: INVALID_INPUT naming the value.
    """
    for name, value in told.items():
        if not _is_finite(value):
            raise RunFailure(
                ErrorCode.INVALID_INPUT, f"{what}: {name} has a number that is not finite ({str(value)[:80]})",
                hint="leave it out, or tell it as a text",
            )  # fmt: skip


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


_ALWAYS = frozenset({str, int, bool, type(None)})
"""What most values are: outcomes are looked through in every round."""


def _is_json(value: Any) -> bool:
    if type(value) in _ALWAYS:
        return True
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_json(each) for name, each in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int)


Kind = type[BaseException] | Callable[[BaseException], bool]


def first_reason(several: BaseExceptionGroup[BaseException], *order: Kind) -> BaseException:
    """Of the errors that ended computations side by side, the first of the first kind of these that there is."""
    found: BaseException = next((group for kind in order if (group := several.subgroup(kind))), several)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
