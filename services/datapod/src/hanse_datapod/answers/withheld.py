"""What a hidden answer does not say: why work failed on the data, and how long it took.

Of such failures the hub hears one of a few fixed codes, for a reason is an oracle. A hub that chooses the model can
make an update finite or not by one value of the data, so what a failure says in words is in the site's own log alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hanse_datapod.home.database import FAILED
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_fabric.errors import ErrorCode, HanseError, unfit
from hanse_fabric.messages import HiddenFailure, MaskingMode, Task

_NOT_OF_DATA = frozenset({ErrorCode.CANCELLED, ErrorCode.QUORUM})
"""The hub has closed the task; other sites have left a sum in its middle."""
_UNFIT = frozenset(
    {
        ErrorCode.SCHEMA_MISMATCH, ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND, ErrorCode.POLICY, ErrorCode.CONFLICT,
    }
)  # fmt: skip
_UNABLE = frozenset(
    {ErrorCode.TIMEOUT, ErrorCode.TOO_LARGE, ErrorCode.NO_SPACE, ErrorCode.NO_DEVICE, ErrorCode.UNAVAILABLE}
)


def hides(task: Task) -> bool:
    """Whether the answer tells the hub nothing of this site alone: it is masked, or has noise."""
    return _masked(task) or task.privacy is not None


def _masked(task: Task) -> bool:
    return task.masking is not None and task.masking.mode is not MaskingMode.RING


def seconds_told(policy: PrivacyPolicy, task: Task, took: float) -> float:
    """How long the work took, in seconds, or 0 where the answer hides the number of examples, of which that speaks: it
    is masked, or private and the policy does not open durations by name."""
    if _masked(task):
        return 0.0
    opened = "seconds" in (policy.uncovered or ()) if task.privacy is not None else policy.tells("seconds")
    return took if opened else 0.0


@contextmanager
def of_the_data(task: Task) -> Iterator[None]:
    """What goes wrong in the block may depend on the data: where the answer is hidden, only a fixed code leaves."""
    try:
        yield
    except HanseError as error:
        if not hides(task) or error.code in _NOT_OF_DATA:
            raise
        raise withheld(error) from error


def unforeseen(task: Task, error: Exception) -> HanseError:
    """What the hub hears of an exception that nobody meant: the same words always, for its own may quote the data."""
    reason = unfit(
        "the site could not do this task, and did not foresee why: the site's own log has where it was raised",
        f"{type(error).__name__}: {error}", code=ErrorCode.INTERNAL,
    )  # fmt: skip
    return withheld(reason) if hides(task) else reason


def of_the_system(task: Task, error: OSError) -> HanseError:
    """What the hub hears of a disk or a system that failed: the same words always, for its own may name files."""
    reason = unfit(FAILED, f"{type(error).__name__}: {error}", code=ErrorCode.INTERNAL)
    return withheld(reason) if hides(task) else reason


def withheld(error: HanseError) -> HanseError:
    """One of `HiddenFailure` in place of an error; the site's log has the whole."""
    if error.code in _UNFIT:
        kind = HiddenFailure.UNFIT
    elif error.code in _UNABLE:
        kind = HiddenFailure.UNABLE
    else:
        kind = HiddenFailure.FAILED
    return unfit(kind.text, f"{error.code.code}: {error.whole}", code=ErrorCode.of(kind.value))
